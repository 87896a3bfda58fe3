"""Record batches as brokers store them: read, judged and framed anew without touching their records."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_replication.kafka.batch_scan import BatchScan, without_aborted
from kafka_replication.runtime.deadline import StallClock
from kafka_replication.verification.digests import BatchDigest
from kafka_replication.wire.batch import (
    CODEC,
    CONTROL,
    FRAME,
    LAST_CODEC,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Batch,
    Malformed,
    batches,
)

COMMIT, ABORT = b"\x10\x00\x00\x00\x08\x00\x00\x00\x01\x00", b"\x10\x00\x00\x00\x08\x00\x00\x00\x00\x00"


def made(offset: int, count: int = 1, payload: bytes = b"records", **more: int) -> Batch:
    """A batch as a broker has it."""
    fields = {"attributes": 0, "producer_id": -1, "producer_epoch": -1, "leader_epoch": 3} | more
    fields = {"base_timestamp": 5, "max_timestamp": 9} | fields
    view = memoryview(payload)
    return Batch(base_offset=offset, last_offset_delta=count - 1, count=count, payload=view, **fields)


def sent(batch: Batch, producer: int = 7, epoch: int = 2, sequence: int = 100) -> bytes:
    header, payload = batch.framed(producer, epoch, sequence)
    return header + bytes(payload)


@given(
    st.binary(min_size=1, max_size=50),
    st.integers(1, 1000),
    st.integers(0, 4),
    st.integers(-1, 2**62),
    st.integers(0, 2**31 - 1),
)
def test_a_batch_is_sent_with_all_that_decodes_its_records(
    payload: bytes, count: int, codec: int, time: int, sequence: int
) -> None:
    batch = made(12, count, payload, attributes=codec, base_timestamp=time, max_timestamp=time + 1)
    data = sent(batch, sequence=sequence)
    assert len(data) == batch.size == FRAME + len(payload)
    [read] = batches(memoryview(data + data[:-1]), checked=True)  # the second one is cut
    assert (read.producer_id, read.count, read.last_offset_delta) == (7, count, count - 1)
    assert (read.base_timestamp, read.max_timestamp) == (time, time + 1)
    assert read.attributes == codec | TRANSACTIONAL
    assert bytes(read.payload) == payload
    assert int.from_bytes(data[53:57], "big") == sequence
    assert digest(read) == digest(batch)


@given(st.integers(21, 80), st.integers(1, 255))
def test_a_damaged_batch_is_noticed(at: int, flip: int) -> None:
    data = bytearray(sent(made(0, 3, b"x" * 20)))
    data[at] ^= flip
    with pytest.raises(Malformed, match="checksum of the batch at offset 0"):
        list(batches(memoryview(data), checked=True))


def test_an_old_format_is_named() -> None:
    data = bytearray(sent(made(0)))
    data[16] = 1
    with pytest.raises(Malformed, match="format 1"):
        list(batches(memoryview(data)))


def test_a_length_that_cannot_be_is_named() -> None:
    data = bytearray(sent(made(0)))
    data[8:12] = (5).to_bytes(4, "big")
    with pytest.raises(Malformed, match="says that it has 5 bytes"):
        list(batches(memoryview(data)))


def digest(*found: Batch) -> str:
    total = BatchDigest()
    for batch in found:
        total.add_batch(batch)
    return total.hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        made(0, 2, b"other"),
        made(0, 3, b"records"),
        made(0, 2, b"records", attributes=1),
        made(0, 2, b"records", base_timestamp=6),
        made(0, 2, b"records", attributes=LOG_APPEND_TIME),
        made(0, 2, b"records")._replace(last_offset_delta=2),
    ],
    ids=["records", "count", "codec", "time", "type of time", "delta"],
)
def test_batches_that_differ_have_different_digests(other: Batch) -> None:
    assert digest(other) != digest(made(0, 2, b"records"))


def test_the_digest_tells_how_records_are_cut() -> None:
    assert digest(made(0, 1, b"ab"), made(1, 1, b"c")) != digest(made(0, 1, b"a"), made(1, 1, b"bc"))


def test_what_the_target_sets_is_not_in_the_digest() -> None:
    one = made(0, 2, b"records", producer_id=5, leader_epoch=0, max_timestamp=9, attributes=TRANSACTIONAL)
    assert digest(one) == digest(made(77, 2, b"records"))


def test_a_reader_sees_what_was_committed() -> None:
    """Producer 1 aborts, then commits; producer 2 commits meanwhile; others write without transactions."""
    came = [
        made(0, 5),
        made(5, 5, producer_id=1, attributes=TRANSACTIONAL),
        made(10, 5, producer_id=2, attributes=TRANSACTIONAL),
        made(15, 1, ABORT, producer_id=1, attributes=TRANSACTIONAL | CONTROL),
        made(16, 5, producer_id=1, attributes=TRANSACTIONAL),
        made(21, 1, COMMIT, producer_id=2, attributes=TRANSACTIONAL | CONTROL),
        made(22, 1, COMMIT, producer_id=1, attributes=TRANSACTIONAL | CONTROL),
    ]
    seen = {batch.base_offset: not batch.is_control for batch in without_aborted(came, [(5, 1)])}
    assert seen == {0: True, 5: False, 10: True, 15: False, 16: True, 21: False, 22: False}


def test_an_aborted_transaction_may_have_begun_before_what_came() -> None:
    came = [
        made(10, 5, producer_id=1, attributes=TRANSACTIONAL),
        made(15, 1, ABORT, producer_id=1, attributes=TRANSACTIONAL | CONTROL),
        made(16, 5, producer_id=1, attributes=TRANSACTIONAL),
        made(21, 1, ABORT, producer_id=1, attributes=TRANSACTIONAL | CONTROL),
    ]
    assert all(batch.is_control for batch in without_aborted(came, [(3, 1), (16, 1)]))
    assert list(without_aborted(came, [])) == came


class Arrived(BatchScan):
    """All batches are there: nothing is fetched."""

    def __init__(self, came: list[Batch]) -> None:
        self._arrived, self._first, self._clock = iter(came), None, StallClock(60)
        self.position, self.leader_epoch, self.passed = 0, None, list[tuple[int, int]]()
        self.passing = lambda epoch, until: self.passed.append((epoch, until))

    def _fetch(self, until: int) -> bool:
        self.position = until
        return False


KINDS = st.sampled_from([(0, 0), (3, 0), (TRANSACTIONAL | 3, 0), (LOG_APPEND_TIME, 0), (0, 1), (0, 2)])


ARRIVED = st.lists(st.tuples(KINDS, st.integers(1, 3), st.booleans(), st.integers(0, 2)), max_size=12)
PLAIN, OF_BROKER = (3, 0), (LOG_APPEND_TIME, 0)


@given(drawn=ARRIVED, end=st.integers(0, 40), first=st.integers(0, 3), most=st.integers(1, 9), room=st.integers(0, 4))
@example(drawn=[(PLAIN, 2, True, 0), (PLAIN, 1, False, 0), (PLAIN, 1, True, 0)], end=9, first=0, most=9, room=4)
@example(drawn=[(PLAIN, 2, True, 0), (PLAIN, 1, True, 0)], end=9, first=1, most=9, room=4)
@example(drawn=[((0, 0), 2, True, 0), (OF_BROKER, 1, True, 0)], end=9, first=0, most=9, room=4)
@example(drawn=[(PLAIN, 2, True, 0), ((5, 0), 1, True, 0)], end=9, first=0, most=9, room=4)
def test_what_is_taken_together_is_what_is_taken_one_by_one(
    drawn: list[tuple[tuple[int, int], int, bool, int]], end: int, first: int, most: int, room: int
) -> None:
    came, offset, epoch = list[Batch](), 0, 0
    for (attributes, hole), count, visible, gap in drawn:
        epoch += gap == 2
        hidden = 0 if visible else CONTROL
        one = made(offset + gap // 2, count, b"r" * count, attributes=attributes | hidden, leader_epoch=epoch)
        came.append(one._replace(last_offset_delta=count - 1 + hole))
        offset = came[-1].until
    until, largest = min(end, offset + 1), FRAME + room
    one_by_one, together = Arrived(came), Arrived(came)
    one_by_one.position = together.position = first
    wanted = list[Batch]()
    while (batch := one_by_one.peek(until)) is not None:
        wanted.append(batch)
        one_by_one.take(until)
    found = list[Batch]()
    while (batch := together.peek(until)) is not None:
        if whole := [*together.take_whole(until, most, largest)]:
            assert whole[0] == batch and sum(each.count for each in whole) <= most
            assert len({each.leader_epoch for each in whole}) == 1
            assert all(each.is_as_sent and 0 < each.count == each.last_offset_delta + 1 for each in whole)
            assert all(each.attributes & CODEC <= LAST_CODEC for each in whole)
            assert all(first <= each.base_offset and each.until <= until and each.size <= largest for each in whole)
            found += whole
        else:
            found.append(batch)
            together.take(until)
    assert found == wanted and together.position == one_by_one.position
    assert together.leader_epoch == one_by_one.leader_epoch
    assert dict(together.passed) == dict(one_by_one.passed), "each leader epoch, up to which offset"
