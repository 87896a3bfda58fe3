"""Reading the answers of a broker: each visible batch once, wherever an answer is cut, whatever of it is damaged."""

from __future__ import annotations

import struct
from collections import deque
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_replication.kafka.batch_scan import BatchScan, HeaderNames
from kafka_replication.kafka.callbacks import Throttling
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.wire.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Malformed
from kafka_replication.wire.connection import Connection
from tests.support.raw_produce import RawRecord, raw_batch

ABORT = b"\x10\x00\x00\x00\x08\x00\x00\x00\x00\x00"  # the key and value of a marker
ALWAYS = 99
KINDS = {"plain": 0, "aborted": TRANSACTIONAL, "marker": TRANSACTIONAL | CONTROL, "given time": LOG_APPEND_TIME}
DRAWN = st.tuples(
    st.sampled_from([*KINDS]), st.integers(1, 3), st.integers(0, 2), st.sampled_from([0, 0, 0, 1, 2, ALWAYS])
)


class Leader:
    """Has a log of batches, some of which arrive damaged for the first few times. It answers with as many bytes of it
    as ``sizes`` say in turn, but with at least one batch.
    """

    address = "broker"

    def __init__(self, log: list[tuple[int, int, bytes, str]], damages: dict[int, int], sizes: list[int]) -> None:
        self._log, self._damages, self._sizes, self._asked = log, damages, deque(sizes), deque[int]()

    @property
    def open_requests(self) -> int:
        return len(self._asked)

    def request(self, request: Any) -> None:
        self._asked.append(int(request.topics[0].partitions[0].fetch_offset))

    def answer(self, _: object) -> Any:
        offset, size = self._asked.popleft(), self._sizes[0]
        self._sizes.rotate(-1)
        wanted = [one for one in self._log if one[1] > offset]
        parts = [self._sent(first, data) for first, _, data, _ in wanted]
        text = b"".join(parts)[: max(size, len(parts[0]))] if parts else b""
        aborted = [
            SimpleNamespace(first_offset=first, producer_id=-1) for first, _, _, kind in wanted if kind == "aborted"
        ]
        data = SimpleNamespace(error_code=0, records=text, aborted_transactions=aborted)
        topic = SimpleNamespace(partitions=[data])
        return SimpleNamespace(throttle_time=SimpleNamespace(total_seconds=lambda: 0.0), responses=[topic])

    def _sent(self, first: int, data: bytes) -> bytes:
        if not self._damages.get(first):
            return data
        self._damages[first] -= 1
        return data[:-1] + bytes([data[-1] ^ 1])

    def understanding(self) -> nullcontext[None]:
        return nullcontext()

    def close(self) -> None:
        self._asked.clear()


class Scan(BatchScan):
    """With a leader of this process."""

    def __init__(self, leader: Leader, limit: int | None = None) -> None:
        super().__init__({}, TopicPartition("t", 0), 5.0, Throttling("", ""), limit)
        self._leader = leader

    @property
    def connection(self) -> Connection:
        return cast("Connection", self._leader)

    def close(self) -> None:
        self._leader.close()


@given(drawn=st.lists(DRAWN, min_size=1, max_size=12), sizes=st.lists(st.integers(1, 900), min_size=1, max_size=5))
@example(drawn=[("plain", 1, 0, 0), ("plain", 1, 0, 1), ("plain", 1, 0, 0)], sizes=[900])
@example(drawn=[("plain", 1, 0, 0), ("plain", 1, 0, ALWAYS), ("plain", 1, 0, 0)], sizes=[900])
@example(
    drawn=[("plain", 1, 0, 0), ("given time", 2, 1, 1), ("aborted", 1, 0, 1), ("marker", 1, 0, 0)], sizes=[100, 900]
)
def test_each_visible_batch_comes_once_up_to_one_that_stays_damaged(
    drawn: list[tuple[str, int, int, int]], sizes: list[int]
) -> None:
    log, damages, expected = list[tuple[int, int, bytes, str]](), dict[int, int](), list[int]()
    offset, broken = 0, None
    for kind, count, hole, damaged in drawn:
        first = offset + hole
        records = [RawRecord(ABORT[:4], ABORT[4:])] if kind == "marker" else [RawRecord(value=b"v")] * count
        data = raw_batch(records, first, attributes=KINDS[kind])
        offset = first + len(records)
        log.append((first, offset, data, kind))
        damages[first] = damaged
        if broken is None and damaged == ALWAYS:
            broken = first
        if broken is None and kind in ("plain", "given time"):
            expected.append(first)
    scan, found, errors = Scan(Leader(log, damages, sizes)), list[int](), 0
    scan.go_to(0)
    while errors < 30 and len(found) <= len(log):
        try:
            if (batch := scan.peek(offset)) is None:
                break
            before = len(found)
            for whole in scan.take_whole(offset, 1_000, 10_000):
                found.append(whole.base_offset)
            if len(found) == before:
                found.append(batch.base_offset)
                scan.take(offset)
        except Malformed:
            errors += 1
    assert found == expected
    assert (errors < 30) is (broken is None)
    if broken is not None:
        with pytest.raises(Malformed, match=f"the batch at offset {broken} is wrong"):
            scan.peek(offset)


WITH_HEADERS = [RawRecord(b"k", b"v", ((b"name", b"content"),))] * 2


def four(damaged: bytes | None = None) -> Leader:
    """Four batches of two records; the second one is damaged always, as it is stored if it is given."""
    log = [(first, first + 2, raw_batch(WITH_HEADERS, first), "plain") for first in (0, 2, 4, 6)]
    if damaged is not None:
        log[1] = 2, 4, damaged, "plain"
    return Leader(log, {} if damaged else {2: ALWAYS}, [100_000])


def test_a_damaged_batch_that_nobody_asks_for_is_passed_over() -> None:
    """It may be one of offsets that were given up, or of another writer."""
    scan = Scan(four())
    found = [batch.base_offset for range_ in (OffsetRange(0, 2), OffsetRange(4, 8)) for batch in scan.visible(range_)]
    assert found == [0, 4, 6]
    names = HeaderNames(TopicPartition("t", 0), Scan(four()))
    headers = [("name", b"content")]
    assert [names.wrong(offset, headers) for offset in (0, 1, 4, 5, 6, 7)] == [None] * 6


@pytest.mark.timeout(60)
def test_a_damaged_number_of_records_does_not_make_a_limited_reader_wait() -> None:
    """It waited for what two thousand million records would have taken."""
    bad = bytearray(raw_batch(WITH_HEADERS, 2))
    struct.pack_into(">i", bad, 57, 2 - 2**31)
    scan = Scan(four(bytes(bad)), limit=1_000_000)
    scan.go_to(0)
    assert scan.peek(4) is not None
    scan.take(4)
    with pytest.raises(Malformed, match="the batch at offset 2 is wrong"):
        scan.peek(4)
