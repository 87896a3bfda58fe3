"""Reading one partition back: what is pending, from where receipts are read, and what a further attempt reads again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kafka_replication.ledger.entries import FailedRecord, Ids, Position, Receipt
from kafka_replication.ledger.placement import KafkaSegments, Part, Segment
from kafka_replication.ledger.receipts import Receipts, StoredReceipt
from kafka_replication.model.errors import Stalled, Unreachable
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.verification.digests import DIGEST_KIND
from kafka_replication.verification.read_back import ReadBack, ReadBackTask
from kafka_replication.verification.verify import PartDigest, Sides, TargetReader

KEY = PartitionKey("orders-dr", TopicPartition("orders", 3), "dr.orders")
CHUNK = 10


def covered(until: int, from_: int = 0) -> Coverage:
    return Coverage.of([OffsetRange(from_, until)])


def receipt(number: int) -> Receipt:
    """Of the chunk [10 * number, 10 * number + 10), which lies at the same offsets on the target."""
    segment = Segment(partition=3, first=CHUNK * number, last=CHUNK * number + 9, count=CHUNK, digest=str(number))
    return Receipt(
        generation=1,
        range=OffsetRange(CHUNK * number, CHUNK * (number + 1)),
        count=CHUNK,
        bytes=100,
        digest="all",
        digest_kind=DIGEST_KIND,
        engine="engine",
        placement=KafkaSegments((segment,)),
        ids=Ids("SRC", "s", "t"),
        run_id="run",
        time="time",
    )


@dataclass
class Chunks:
    """A ledger and a target with ``count`` chunks; the receipt of chunk n is at offset 100 + n of its topic."""

    count: int = 4
    log_start: int = 0
    missing: set[int] = field(default_factory=set)
    generation: int = 1
    asked: list[int | None] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    stalls: dict[int, int] = field(default_factory=dict)  # how often the reading of a chunk stalls

    def position(self, key: PartitionKey) -> Position:
        return Position(
            generation=self.generation,
            ids=Ids("SRC", "s", "t"),
            start=0,
            next_offset=CHUNK * self.count,
            coverage=covered(CHUNK * self.count),
        )

    def receipts(self, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        (since,) = wanted.values()
        self.asked.append(since)
        there = [n for n in range(self.count) if n not in self.missing and 100 + n >= max(since or 0, self.log_start)]
        return Receipts(
            stored={KEY: tuple(StoredReceipt(100 + n, receipt(n)) for n in there)},
            since={KEY: since or 0},
            log_starts={KEY.ledger_partition: self.log_start},
            ends={KEY.ledger_partition: 100 + self.count},
        )

    def reader(self) -> AbstractContextManager[TargetReader]:
        chunks = self

        class Reader:
            def read(self, segment: Part, digest: Any) -> PartDigest:
                number = segment.first // CHUNK
                if chunks.stalls.get(number, 0):
                    chunks.stalls[number] -= 1
                    raise Stalled("no record", "wait")
                chunks.read.append(number)
                return PartDigest(segment.count, segment.digest)

            def quarantined(self, failed: FailedRecord) -> bool:
                raise NotImplementedError

        @contextmanager
        def opened() -> Iterator[TargetReader]:
            yield Reader()

        return opened()

    def sides(self) -> AbstractContextManager[Sides]:
        raise AssertionError("chunks of transactions are compared with their receipts alone")

    def read_back(self, task: ReadBackTask) -> ReadBack:
        return ReadBack(task, self, self.reader, self.sides)  # type: ignore[arg-type]  # what it uses of a ledger


TASK = ReadBackTask(key=KEY, generation=1, verified=Coverage(), receipts_from=100, level="digest", kept_seconds=86_400)


def test_everything_that_is_not_verified_is_read_once_and_the_next_needs_no_receipt_of_it() -> None:
    chunks = Chunks()
    reading = chunks.read_back(replace(TASK, verified=covered(20), receipts_from=102))
    reading.attempt()
    assert (reading.result.verified, reading.result.error, reading.result.records) == (covered(40, 20), None, 20)
    assert (chunks.asked, chunks.read, reading.result.receipts_from) == ([102], [2, 3], 104)


def test_receipts_are_read_from_where_those_of_the_copy_begin() -> None:
    chunks = Chunks()
    reading = chunks.read_back(replace(TASK, verified=covered(20), copied_from=102))
    reading.attempt()
    assert (reading.result.verified, reading.result.error, reading.result.receipts_from) == (covered(40, 20), None, 104)
    assert (chunks.asked, chunks.read) == ([102], [2, 3])


@pytest.mark.parametrize(("receipts_from", "asked"), [(101, [103, 101]), (102, [103, 102, None])], ids=str)
def test_what_an_earlier_run_left_unverified_is_read_too(receipts_from: int, asked: list[int | None]) -> None:
    chunks = Chunks()
    reading = chunks.read_back(replace(TASK, verified=covered(10), receipts_from=receipts_from, copied_from=103))
    reading.attempt()
    assert (reading.result.verified, reading.result.error, reading.result.receipts_from) == (covered(40, 10), None, 104)
    assert (chunks.asked, chunks.read) == (asked, [1, 2, 3])


def test_what_is_verified_needs_no_receipt() -> None:
    chunks = Chunks()
    reading = chunks.read_back(replace(TASK, verified=covered(40)))
    reading.attempt()
    assert (reading.result.verified, reading.result.error, chunks.asked) == (Coverage(), None, [])


def test_a_partition_that_was_reset_meanwhile_is_left_alone() -> None:
    chunks = Chunks(generation=2)
    reading = chunks.read_back(TASK)
    reading.attempt()
    assert (reading.result.verified, reading.result.error, chunks.asked) == (Coverage(), None, [])


@pytest.mark.parametrize("stalls", [{0: 1}, {2: 1}, {1: 2, 3: 1}], ids=str)
def test_another_attempt_reads_only_what_is_left(stalls: dict[int, int]) -> None:
    chunks = Chunks(stalls=dict(stalls))
    reading = chunks.read_back(TASK)
    attempts = 0
    while attempts < 10:
        attempts += 1
        try:
            reading.attempt()
            break
        except Unreachable:
            done = len(chunks.read)
            assert reading.result.verified == (covered(CHUNK * done) if done else Coverage())
            assert reading.result.receipts_from == 100 + done
    assert attempts == 1 + sum(stalls.values())
    assert (chunks.read, reading.result.verified, reading.result.records) == ([0, 1, 2, 3], covered(40), 40)


def test_a_missing_receipt_is_looked_for_in_the_whole_topic_before_it_is_an_error() -> None:
    chunks = Chunks(missing={1})
    reading = chunks.read_back(TASK)
    reading.attempt()
    assert reading.result.error and "no receipt for source offsets [10, 20)" in reading.result.error
    assert (chunks.asked, chunks.read) == ([100, None], [])
    behind = Chunks().read_back(replace(TASK, receipts_from=103))  # the pointer is wrong: the topic was re-created
    behind.attempt()
    assert (behind.result.verified, behind.result.error) == (covered(40), None)


def test_receipts_that_expired_are_named_with_the_command_that_gives_them_up() -> None:
    reading = Chunks(log_start=102).read_back(TASK)
    reading.attempt()
    result = reading.result
    assert result.error and "receipts of [0, 20) have expired" in result.error and "86400 seconds" in result.error
    assert "approve-gap" in result.remedy and "--from 0 --until 20" in result.remedy and not result.retriable
