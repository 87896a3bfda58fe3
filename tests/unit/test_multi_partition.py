"""Chunks in several target partitions: what is gone of them, which offsets are whose, what contradicts what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from kafka_replication.copying.engine import Chunk
from kafka_replication.copying.sink import Record
from kafka_replication.kafka import audit, chunk_places
from kafka_replication.kafka.audit import pieces
from kafka_replication.kafka.chunk_places import MOST_RANGES, Offsets, _Growing
from kafka_replication.kafka.chunk_writer import ChunkWriter
from kafka_replication.kafka.partitioner import partitioner
from kafka_replication.kafka.producers import SendWindow
from kafka_replication.ledger import codec
from kafka_replication.ledger.entries import Ids, Position, Receipt, Removed
from kafka_replication.ledger.placement import KafkaPartitions, Part, SpreadEnds
from kafka_replication.ledger.receipts import Receipts, StoredReceipt
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import PartitionedBy, Partitioning
from kafka_replication.model.errors import Stalled, TargetLost
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning.recopy import is_gone, is_gone_in_part
from kafka_replication.planning.snapshot import PartitionOffsets, Topic
from kafka_replication.planning.target_retention import Retention, may_be_gone, removed
from kafka_replication.reporting.audit import PartitionAudit
from kafka_replication.runs.audit_tasks import TargetReading
from kafka_replication.runtime.deadline import out_of_time
from kafka_replication.verification import auditing
from kafka_replication.verification.auditing import Audit, Claim
from kafka_replication.verification.digests import Fingerprint
from kafka_replication.verification.matching import Kind, Seen

KEY = PartitionKey("r", TopicPartition("orders", 0), "orders")
IDS = Ids("c", "s", "t")
BY = PartitionedBy(name="by_key", hash="", partitions=3)


def covered(*pairs: tuple[int, int]) -> Coverage:
    return Coverage.of(OffsetRange(*pair) for pair in pairs)


def part(partition: int, *pairs: tuple[int, int]) -> Part:
    return Part(partition=partition, offsets=covered(*pairs), count=covered(*pairs).span, digest=f"d{partition}")


def receipt(from_: int, until: int, *parts: Part) -> Receipt:
    return Receipt(
        generation=1,
        range=OffsetRange(from_, until),
        count=sum(one.count for one in parts),
        bytes=0,
        digest="",
        digest_kind="xxh3_128/1",
        engine="record/1",
        placement=KafkaPartitions(BY, parts),
        ids=IDS,
        run_id="r",
        time="t",
    )


CHUNKS = (
    receipt(0, 10, part(0, (0, 4), (7, 9)), part(1, (0, 4))),
    receipt(10, 20, part(0, (10, 13)), part(1, (5, 9)), part(2, (0, 3))),
)
POSITION = Position(
    generation=1,
    ids=IDS,
    start=0,
    next_offset=20,
    coverage=covered((0, 20)),
    spread=SpreadEnds(BY, (13, 9, 3)),
)
VIEW = LedgerView({KEY: POSITION})


def target(*starts: int) -> Topic:
    partitions = {number: PartitionOffsets(start, 99, 99) for number, start in enumerate(starts)}
    return Topic(name="orders", topic_id="t", partitions=partitions, replication_factor=1)


def looked(*starts: int) -> Removed:
    stored = tuple(StoredReceipt(100 + number, one) for number, one in enumerate(CHUNKS))
    read = Receipts(
        stored={KEY: stored}, since={KEY: 0}, log_starts={KEY.ledger_partition: 0}, ends={KEY.ledger_partition: 102}
    )
    return removed(
        VIEW[KEY],
        read,
        dict(enumerate(starts)),
        Retention(None, None),
        None,
        ("r", "t"),
    )


@pytest.mark.parametrize(
    ("starts", "gone", "whole", "first_that_stays"),
    [
        ((0, 0, 0), [], [], 100),
        ((1, 0, 0), [[0, 10]], [], 100),  # a part of the first chunk: which of its offsets is not known
        ((5, 0, 0), [[0, 10]], [], 100),
        ((9, 4, 0), [[0, 10]], [[0, 10]], 101),
        ((9, 5, 0), [[0, 10]], [[0, 10]], 101),
        ((0, 6, 0), [[0, 20]], [], 100),
        ((20, 20, 20), [[0, 20]], [[0, 10], [10, 20]], 102),
    ],
)
def test_what_is_gone(starts: tuple[int, ...], gone: list[Any], whole: list[Any], first_that_stays: int) -> None:
    assert may_be_gone(VIEW[KEY], target(*starts)) is any(starts)
    entry = looked(*starts)
    assert (entry.coverage.encode(), entry.target_starts, entry.receipts_from) == (gone, starts, first_that_stays)
    assert [[one.range.from_, one.range.until] for one in CHUNKS if is_gone(one, entry)] == whole
    in_part = Coverage.of(one.range for one in CHUNKS if is_gone_in_part(one, entry))
    assert in_part == entry.coverage.subtract(Coverage.of(OffsetRange(*pair) for pair in whole))
    noted = replace(VIEW, removed={KEY: entry})
    assert not may_be_gone(noted[KEY], target(*starts))  # later runs look again only if more is gone


def test_a_chunk_moves_the_ends_of_its_partitions_alone() -> None:
    chunk = Chunk(
        range=OffsetRange(20, 30),
        count=2,
        bytes=0,
        digest="",
        placement=KafkaPartitions(BY, (part(1, (30, 32)),)),
        leader_epoch=None,
    )
    moved = chunk.moved(POSITION)
    assert moved.spread == SpreadEnds(BY, (13, 32, 3)) and moved.target_end == 0
    more = replace(BY, partitions=5)
    grown = replace(chunk, placement=KafkaPartitions(more, (part(4, (0, 2)),))).moved(POSITION)
    assert grown.spread == SpreadEnds(more, (13, 9, 3, 0, 2))
    shared = replace(BY, name="keep")
    kept = replace(chunk, placement=KafkaPartitions(shared, (part(1, (30, 32)),)))
    assert kept.moved(replace(POSITION, spread=None)).target_end == 32


def test_a_receipt_beyond_the_position_contradicts_it() -> None:
    stored = tuple(StoredReceipt(number, one) for number, one in enumerate(CHUNKS))
    read = Receipts(stored={KEY: stored}, since={KEY: 0}, log_starts={KEY.ledger_partition: 0}, ends={})
    assert VIEW[KEY].contradictions_in(read) == []
    short = replace(POSITION, spread=SpreadEnds(BY, (13, 8, 3)))
    (text,) = LedgerView({KEY: short})[KEY].contradictions_in(read)
    assert "a receipt ends at offset 9 of orders-1, but the position says 8" in text


@dataclass
class Log:
    """A target partition that has these offsets."""

    offsets: list[int]
    read_: list[int] = field(default_factory=list)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None: ...

    def seen(self, wanted: OffsetRange) -> Iterator[Seen]:
        return (Seen(offset, b"%d" % offset) for offset in self.offsets if offset in wanted)


def claim(*pairs: tuple[int, int]) -> Claim:
    return Claim(covered(*pairs), None)


def searching(at: TopicPartition, *, searches: bool) -> Audit:
    log = OffsetRange(0, 20)
    logs, claims = {at.partition: log}, (claim((0, 2)),)
    return Audit(id=7, partition=at, target_logs=logs, claims=claims, searched=log if searches else None)


def test_the_pieces_of_a_target_partition_are_read_in_its_order_each_once() -> None:
    claims = [claim((0, 3), (6, 9)), claim((3, 5), (12, 14))]
    found = [(number, str(range_)) for number, range_ in pieces(claims, OffsetRange(1, 20))]
    assert found == [
        (0, "[1, 3)"),
        (1, "[3, 5)"),
        (None, "[5, 6)"),
        (0, "[6, 9)"),
        (None, "[9, 12)"),
        (1, "[12, 14)"),
        (None, "[14, 20)"),
    ]


def test_what_lies_between_all_claims_is_extra_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "LISTED", 2)
    read, log = TargetReading(), cast("Any", Log([0, 1, 5, 11, 15]))
    for number, searches in enumerate([True, False]):
        at = TopicPartition("orders", number)
        task = searching(at, searches=searches)
        read.take(task, audit.read_claims(task, at, lambda at: log, lambda: None))
    others = [PartitionKey("r", TopicPartition("orders", number), "orders") for number in (0, 1)]
    results = [PartitionAudit(key=key, generation=1, range=OffsetRange(0, 10)) for key in others]
    for result in results:
        read.report_extra(result, others)
    told = [str(stretch) for result in results for stretch in result.stretches]
    assert told == [f"extra target partition 0 [{n}, {n + 1}): 1 record" for n in (5, 11)]
    assert [(result.counts[Kind.EXTRA], result.unlisted) for result in results] == [(3, 1), (0, 0)]


def test_where_records_of_nobody_could_not_be_looked_for_the_audit_failed() -> None:
    """Also in a target partition where nothing of ours lies: it is reported with the first source partition."""
    read, keys = TargetReading(), [PartitionKey("r", TopicPartition("orders", number), "orders") for number in (0, 1)]
    searched, other = TopicPartition("orders", 2), TopicPartition("orders", 1)
    read.searched.add(searched)
    for at in (searched, other):
        task = searching(at, searches=at == searched)
        read.take(task, task.failed(f"{at}: nothing arrived"))
    results = [PartitionAudit(key=key, generation=1, range=OffsetRange(0, 10)) for key in keys]
    for result in results:
        read.report_extra(result, keys)
    assert [result.errors for result in results] == [["orders-2: nothing arrived"], []]


def test_a_reading_that_is_out_of_time_ends_with_that_error_and_calls_nothing_equal() -> None:
    def over() -> None:
        raise out_of_time("one piece is read")

    wanted, log = (Claim(covered((3, 5)), "xxh3_128/1"),), OffsetRange(0, 3)
    at = TopicPartition("orders", 0)
    task = replace(searching(at, searches=False), claims=wanted, target_logs={0: log})
    result = audit.read_claims(task, at, lambda at: cast("Any", Log([0, 1])), over)
    assert "one piece is read: the run's time" in result.findings.errors[0]
    assert not result.parts


def test_offsets_that_follow_each_other_are_one_range_and_one_that_falls_is_noticed() -> None:
    growing = _Growing()
    assert all(growing.lies_at(offset) for offset in (4, 5, 6, 9, 10, 30))
    assert growing.part(2).offsets.encode() == [[4, 7], [9, 11], [30, 31]]
    assert not growing.lies_at(30) and not growing.lies_at(-1001) and not growing.lies_at(7)


class Producer:
    """Acknowledges each record at once, at every second offset: somebody else writes as fast."""

    def __init__(self) -> None:
        self.next: dict[int, int] = {}

    def produce(self, topic: str, value: Any, key: Any, partition: int, delivered: Any, *_: Any) -> None:
        offset = self.next.get(partition, 0)
        self.next[partition] = offset + 2
        delivered(None, Message(partition, offset))

    def poll(self, seconds: float) -> int:
        return 0

    def __len__(self) -> int:
        return 0


@dataclass
class Message:
    number: int
    at: int

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at


@dataclass
class Transaction:
    producer: Producer = field(default_factory=Producer)

    topics: set[str] = field(default_factory=set)

    def flush(self) -> None: ...

    def check_failed(self) -> None: ...

    def stall_clock(self) -> None: ...

    sent, on_delivery = 0, None

    def failure(self, of_a_record: KafkaError | None) -> None: ...

    def error(self, error: KafkaError, doing: str) -> Exception:
        return RuntimeError(f"{doing}: {error}")


def writer(**ends: int) -> ChunkWriter:
    sender = cast("Any", Transaction())
    chosen = partitioner(Partitioning(name="round_robin"), KEY.source, range(2))
    return ChunkWriter(
        key=KEY,
        sender=sender,
        places=Offsets(
            key=KEY, partitioner=chosen, error=sender.error, ends={int(number[1:]): end for number, end in ends.items()}
        ),
        window=SendWindow(1.0),
        limits={},
    )


def records(count: int) -> list[Record]:
    return [(n, 1, b"k", b"%d" % n, None) for n in range(count)]


def test_a_placement_has_every_record_where_it_was_acknowledged() -> None:
    chunk = writer()
    chunk.write(records(70))
    chunk.write(records(130)[70:])
    placement = chunk.finish("whole")
    assert isinstance(placement, KafkaPartitions)
    assert [(one.partition, one.count, one.first, one.until) for one in placement.parts] == [
        (0, 70, 0, 139),
        (1, 60, 0, 119),
    ]
    digest = Fingerprint()
    for _, timestamp, key, value, headers in records(120)[60:]:
        digest.add(timestamp, key, value, headers)
    assert placement.parts[1].digest == digest.hexdigest()


def test_a_target_partition_that_lost_its_end_while_we_wrote_is_noticed() -> None:
    """Otherwise its log would grow over the place of records that were verified."""
    chunk = writer(p0=0, p1=3)
    chunk.write(records(70))
    with pytest.raises(TargetLost, match=r"orders-1 .* up to 3: the target lost data"):
        chunk.finish("whole")
    chunk = writer(p1=0)
    chunk.write(records(70))
    chunk.finish("whole")


def test_a_chunk_in_too_many_pieces_ends_so_that_its_receipt_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copier then halves the next chunk, as for any that could not be sent."""
    monkeypatch.setattr(chunk_places, "MOST_RANGES", 100)
    chunk = writer()
    chunk.write(records(90))
    with pytest.raises(Stalled, match="lie in more than 100 pieces"):
        chunk.write(records(30))
    largest = Part(
        partition=2**31 - 1,
        offsets=covered(*((2**62 + 2 * n, 2**62 + 2 * n + 1) for n in range(MOST_RANGES))),
        count=1,
        digest="d" * 32,
    )
    assert len(codec.encode(receipt(0, 10, largest))) < 1_000_000


def test_an_acknowledgement_without_an_offset_ends_the_chunk() -> None:
    chunk = writer()
    chunk.sender.producer.next[1] = -1001  # type: ignore[attr-defined]
    chunk.write(records(70))
    with pytest.raises(RuntimeError, match="acknowledged at -"):
        chunk.finish("whole")
