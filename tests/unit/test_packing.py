"""What the batch engine sends of the batches that come: large ones as they are, small ones packed into one, all in order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_replication.kafka.batch_engine import LARGE, TOGETHER, Packing
from kafka_replication.kafka.batch_producer import BatchProducer
from kafka_replication.ledger.placement import KafkaSegments
from kafka_replication.model.errors import Unexpected
from kafka_replication.verification.digests import BatchDigest
from kafka_replication.wire.batch import CODEC, Batch, Malformed, batches, packed, unpacked
from kafka_replication.wire.contents import Contents
from tests.support.raw_produce import FRAME, RawRecord, raw_batch

SIZES = st.sampled_from([1, 100, 5_000, LARGE - 200, LARGE])
CODECS = st.sampled_from([0, 1, 3])


class Writer:
    """Keeps what is written."""

    first = None

    def __init__(self, seconds_each: float = 0, most: int = 100 * TOGETHER) -> None:
        self.batches = list[Batch]()
        self.seconds_each, self.most = seconds_each, most

    def write(self, batch: Batch) -> None:
        self.batches.append(batch)

    def finish(self, digest: str) -> KafkaSegments:
        return KafkaSegments()


@cache
def batch_of(number: int, size: int, codec: int = 0) -> Batch:
    """Two records, one of this size; ``number`` tells them from others."""
    value = number.to_bytes(4) * (size // 4 + 1)
    [plain] = batches(memoryview(raw_batch([RawRecord(b"%d" % number, value), RawRecord()], offset=2 * number)))
    payload = packed(codec, bytes(plain.payload))
    return plain._replace(attributes=codec, payload=memoryview(payload))


def packing_to(writer: Writer, largest: int) -> Packing:
    return Packing(cast("BatchProducer", writer), largest, Contents())


def sent(came: list[Batch], largest: int = 10 * TOGETHER, *, together: bool = False) -> list[Batch]:
    """What is sent of these batches, which are added one by one, or all ``together``."""
    writer = Writer()
    packing = packing_to(writer, largest)
    for several in [came] if together else [[one] for one in came]:
        packing.add_whole(several)
    digest = packing.hexdigest()
    assert packing.offsets.count == packing.count
    expected = BatchDigest()
    for batch in writer.batches:
        expected.add_batch(batch)
    assert digest == expected.hexdigest()
    assert packing.count == sum(batch.count for batch in writer.batches) == 2 * len(came)
    return writer.batches


def stored(batch: Batch) -> tuple[int, int, bytes]:
    """The offset, the codec and the records of a batch as they are stored."""
    return batch.base_offset, batch.attributes & CODEC, bytes(batch.payload)


@given(st.lists(st.tuples(SIZES, CODECS), min_size=1, max_size=12))
def test_all_records_are_sent_in_their_order(drawn: list[tuple[int, int]]) -> None:
    came = [batch_of(0x41414100 + number, size, codec) for number, (size, codec) in enumerate(drawn)]
    for found in (sent(came), sent(came, together=True)):
        content = b"".join(unpacked(batch.attributes & 7, batch.payload) for batch in found)
        places = [content.index((0x41414100 + number).to_bytes(4)) for number in range(len(came))]
        assert places == sorted(places)
        assert all(batch in found for batch in came if batch.size >= LARGE), "a large one is sent as it is"


def test_small_ones_become_one() -> None:
    assert [batch.count for batch in sent([batch_of(number, 1_000, 3) for number in range(20)])] == [40]


@st.composite
def histories(draw: st.DrawFn) -> list[Batch]:
    """Batches of a producer that waits for nothing: mostly one record each, with holes, other codecs, odd times, lengths
    that need one to three bytes, and damage.
    """
    came, offset, codec = list[Batch](), draw(st.integers(0, 3)), draw(CODECS)
    for _ in range(draw(st.integers(1, 30))):
        offset += draw(st.sampled_from([0, 0, 0, 0, 1, 5]))
        lengths = draw(
            st.lists(st.sampled_from([0, 50, 55, 56, 57, 58, 300, 400, 500, 8_150, 8_200]), min_size=1, max_size=3)
        )
        lengths = lengths[: draw(st.sampled_from([1, 1, 1, 3]))]
        time = draw(st.sampled_from([1_000, 1_001, 990, 9_500, 1 << 45, -5]))
        base = time + draw(st.sampled_from([0, 0, 0, 3, -2]))
        records = [RawRecord(b"k", b"x" * length, (), time + number) for number, length in enumerate(lengths)]
        [plain] = batches(memoryview(raw_batch(records, offset, base)))
        its = draw(st.sampled_from([codec, codec, codec, 0]))
        payload = packed(its, bytes(plain.payload))
        if draw(st.integers(0, 15)) == 0:
            payload = draw(st.sampled_from([payload[:-1], b"", payload + b"\0", packed(its, b"\4\0\0\0\1")]))
        came.append(plain._replace(attributes=its, payload=memoryview(payload)))
        offset = came[-1].until
    return came


@settings(max_examples=150)
@given(histories(), st.sampled_from([600, 20_000, TOGETHER]), st.sampled_from([0.0, 0.001]))
def test_batches_that_come_together_are_packed_as_one_by_one(came: list[Batch], most: int, seconds_each: float) -> None:
    are_packed_alike(came, most, seconds_each)


def test_what_a_codec_costs_is_known_where_the_first_batch_has_none() -> None:
    [plain] = batches(memoryview(raw_batch([RawRecord(None, random.Random(7).randbytes(60_000))], offset=2)))
    large = plain._replace(attributes=1, payload=memoryview(packed(1, bytes(plain.payload))))
    assert large in are_packed_alike([batch_of(0, 100), large], TOGETHER, 0)


@pytest.mark.parametrize(
    "damage", [lambda payload: payload[:-1], lambda payload: payload + b"\0"], ids=["cut", "longer"]
)
def test_a_damaged_record_of_any_length_is_not_packed(damage: Callable[[bytes], bytes]) -> None:
    """Its length may be what a shorter or a longer record would have."""
    for length in [*range(140), *range(8_100, 8_200)]:
        sound, [other] = (
            batches(memoryview(raw_batch([RawRecord(None, b"x" * length)], offset))) for offset in range(2)
        )
        damaged = other._replace(payload=memoryview(damage(bytes(other.payload))))
        written = are_packed_alike([next(sound), damaged], TOGETHER, 0)
        assert damaged in written, length


def are_packed_alike(came: list[Batch], most: int, seconds_each: float) -> list[Batch]:
    """Together and one by one. Returns what is written."""
    together, one_by_one = Writer(seconds_each, most), Writer(seconds_each, most)
    first, second = packing_to(together, TOGETHER), packing_to(one_by_one, TOGETHER)
    first.add_whole(came)
    for one in came:
        second.add_whole([one])
    assert first.hexdigest() == second.hexdigest()
    assert together.batches == one_by_one.batches
    assert (first.count, first.bytes) == (second.count, second.bytes)
    assert first.offsets.map(0, came[-1].until) == second.offsets.map(0, came[-1].until)
    return together.batches


@pytest.mark.parametrize("sizes", [(100, 100, 100), (LARGE, 100, 100), (100, LARGE, LARGE)])
def test_nothing_is_sent_in_another_order(sizes: tuple[int, ...]) -> None:
    """Reading back compares with the digest of what was sent, so it would not notice."""
    came = [batch_of(number, size, 3) for number, size in enumerate(sizes)]
    with pytest.raises(Unexpected, match="would be sent behind"):
        sent([came[0], came[2], came[1]])


def test_what_came_before_one_that_cannot_be_read_has_its_offsets() -> None:
    """The engine copies it, and its receipt says at which offsets there are records."""

    def came() -> Iterator[Batch]:
        yield batch_of(3, 100)
        yield batch_of(7, 100)
        raise Malformed("the checksum of the batch at offset 16 is wrong")

    packing = packing_to(Writer(), TOGETHER)
    with pytest.raises(Malformed):
        packing.add_whole(came())
    assert (packing.count, packing.offsets.count) == (4, 4)
    assert packing.offsets.map(6, 16) is not None


def test_one_alone_is_sent_as_it_is() -> None:
    came = batch_of(7, 1_000, 1)
    assert [stored(batch) for batch in sent([came])] == [stored(came)]


@pytest.mark.parametrize(
    ("records", "seconds_each", "sent_as_they_are"),
    [(16, 0, False), (400, 0, True), (400, 0.001, False), (5_000, 0.001, True)],
    ids=["few records", "many records", "many records, far away", "too many"],
)
def test_what_is_packed_takes_less_time_so_than_in_requests_of_its_own(
    records: int, seconds_each: float, sent_as_they_are: bool
) -> None:
    writer = Writer(seconds_each)
    packing = packing_to(writer, TOGETHER)
    for number in range(3):
        text = raw_batch([RawRecord()] * records, number * records)
        [plain] = batches(memoryview(text))
        small = plain._replace(attributes=3, payload=memoryview(packed(3, bytes(plain.payload))))
        assert small.size < LARGE
        packing.add(small, range(small.base_offset, small.until))
    packing.hexdigest()
    assert (len(writer.batches) == 3) is sent_as_they_are


@pytest.mark.parametrize(
    ("codecs", "expected"),
    [
        ([3, 3, 1, 1, 3], [(3, 4), (1, 4), (3, 2)]),
        ([3, 0, 0, 3], [(3, 8)]),
        ([0, 0, 4, 1], [(4, 6), (1, 2)]),
        ([0, 0], [(0, 4)]),
    ],
)
def test_another_codec_begins_another_one_but_none_does_not(codecs: list[int], expected: list[tuple[int, int]]) -> None:
    """librdkafka compresses no batch that would not become smaller, so a topic has both, one after the other."""
    came = [batch_of(number, 1_000, codec) for number, codec in enumerate(codecs)]
    found = sent(came)
    assert [(batch.attributes, batch.count) for batch in found] == expected
    records = b"".join(unpacked(batch.attributes & CODEC, batch.payload) for batch in found)
    assert all(number.to_bytes(4) * 250 in records for number in range(len(came)))


def test_no_batch_is_larger_than_the_target_takes() -> None:
    found = sent([batch_of(number, 900) for number in range(20)], 3_000)
    assert max(batch.size for batch in found) <= 3_000
    assert [batch.count for batch in found] == [6] * 6 + [4]


def test_a_damaged_one_is_passed_on_with_its_neighbours() -> None:
    came = [batch_of(number, 1_000) for number in range(3)]
    came[1] = came[1]._replace(payload=came[1].payload[:-1])
    assert [stored(batch) for batch in sent(came)] == [stored(batch) for batch in came]


def of_value(value: bytes, offset: int, codec: int = 0) -> bytes:
    records = [RawRecord(value=value)]
    payload = packed(codec, raw_batch(records)[FRAME:])
    return raw_batch(records, offset, attributes=codec, payload=payload)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_batches_that_are_compressed_better_than_the_estimate_says(codec: int) -> None:
    """Else many small ones become one that a consumer has no memory for."""
    kept = Writer()
    packing = packing_to(kept, 10_000_000)
    values = [bytes(range(256)), *[bytes(2_000_000)] * 15]
    for offset, value in enumerate(values):
        [batch] = batches(memoryview(of_value(value, offset, codec)))
        packing.add(batch, range(batch.base_offset, batch.until))
    packing.hexdigest()
    sizes = [len(unpacked(batch.attributes & CODEC, batch.payload)) for batch in kept.batches]
    assert sum(batch.count for batch in kept.batches) == len(values)
    assert max(sizes) <= max(2 * TOGETHER, 2_000_000 + 100)


def test_a_small_batch_does_not_keep_the_answer_that_it_came_in() -> None:
    """An answer may have 4 MB of aborted records around it."""
    packing = packing_to(Writer(), 1_000_000)
    answer = bytearray(of_value(b"v", 0) + bytes(4_000_000))
    [batch] = batches(memoryview(answer)[: len(of_value(b"v", 0))])
    packing.add(batch, range(batch.base_offset, batch.until))
    del batch
    answer.clear()  # raises BufferError if a part of it is in use
    assert packing.count == 1


def test_no_more_is_packed_together_than_the_target_answers_in_time() -> None:
    for most in (50_000, 200_000):
        writer = Writer(most=most)
        packing = packing_to(writer, 10 * TOGETHER)
        for number in range(100):
            packing.add(batch_of(number, 5_000), range(2 * number, 2 * number + 2))
        packing.hexdigest()
        sizes = [batch.size for batch in writer.batches]
        assert most / 2 < max(sizes) <= most and sum(sizes) > 500_000
