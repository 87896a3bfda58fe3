"""The batch engine: what it copies as it is, what it hands over to the record engine, and what it leaves behind."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.kafka.batch_scan import BatchScan
from kafka_replication.kafka.callbacks import Throttling
from kafka_replication.kafka.commit import Atomic
from kafka_replication.kafka.sink import KafkaSink
from kafka_replication.ledger.entries import Receipt
from kafka_replication.model.errors import Fenced
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runs import steps
from kafka_replication.runs.audit import AuditRequest
from kafka_replication.runs.checking import check
from kafka_replication.runs.previewing import preview
from kafka_replication.runs.run import Request
from kafka_replication.wire import transactions
from kafka_replication.wire.batch import CODEC, batches
from tests.conformance.ground import raised
from tests.contract.copy_case import CopyCase
from tests.support.actions import put_receipt, receipts_of
from tests.support.audits import audit
from tests.support.checker import read
from tests.support.compaction import clean_every
from tests.support.jobs import InProcess
from tests.support.raw_produce import RawRecord, produce_batch, raw_batch
from tests.support.scenario import Cluster, Rec, Scenario, numbered, only
from tests.support.waiting import wait_until

BATCHES = {"engine": "batch"}


def engines(scene: Scenario) -> list[tuple[OffsetRange, str]]:
    """Which engine copied which range, as the receipts say."""
    return [(receipt.range, receipt.engine) for receipt in receipts(scene)]


def receipts(scene: Scenario) -> Sequence[Receipt]:
    key = scene.key()
    found = scene.bare_run().clusters.ledger.receipts({key: None}).all(key)
    return sorted(found, key=lambda receipt: receipt.range.from_)


def stored(cluster: Cluster, topic: str) -> list[tuple[int, bytes]]:
    """The codec and the records of each visible batch, as the broker stores them."""
    scan = BatchScan({"bootstrap.servers": cluster.bootstrap}, TopicPartition(topic, 0), 30.0, Throttling("", ""))
    with closing(scan):
        found = scan.visible(OffsetRange(0, cluster.size(topic)))
        return [(batch.attributes & CODEC, bytes(batch.payload)) for batch in found]


def await_compaction(scene: Scenario, compacted: Callable[[Sequence[int]], bool]) -> None:
    """Write until the log is rolled and cleaned: a segment's age is the distance between its records' timestamps."""
    hours = itertools.count(1)

    def is_compacted() -> bool:
        later = Rec(b"roll", b"v", (), Rec().timestamp + 3_600_000 * next(hours))
        scene.source.produce(scene.topic, [later])
        return compacted([offset for offset, _ in read(scene.source.bootstrap, scene.topic, 0)])

    wait_until(is_compacted)


def test_batches_arrive_as_they_are_stored(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    for number, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        scene.source.produce(scene.topic, numbered(400, 400 * number), compression_type=codec, linger_ms=500)
    report = scene.run(copy=BATCHES)
    assert report.outcome == "done", report.table()
    assert (only(report).copied, only(report).digest_ok) == (2_000, True)
    assert {codec for codec, _ in stored(scene.source, scene.topic)} == {0, 1, 2, 3, 4}
    assert {engine for _, engine in engines(scene)} == {"batch/1"}
    assert stored(scene.target, scene.topic) == stored(scene.source, scene.topic)
    scene.assert_copied()
    assert scene.watermark() == 2_000


def test_small_batches_are_packed_into_one(scene: Scenario) -> None:
    """Their records, of each codec by itself, are in one batch; those without compression are with the next ones. What
    was aborted between them is left out.
    """
    scene.source.create(scene.topic)
    for number, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        scene.source.produce(scene.topic, numbered(180, 180 * number), compression_type=codec, batch_num_messages=20)
        scene.source.transaction(scene.topic, numbered(3), abort=True)
    assert len(stored(scene.source, scene.topic)) >= 5 * 9
    report = scene.run(copy=BATCHES)
    assert report.outcome == "done", report.table()
    assert (only(report).copied, only(report).not_visible, only(report).digest_ok) == (900, 20, True)
    assert {engine for _, engine in engines(scene)} == {"batch/1"}
    codecs = [codec for codec, _ in stored(scene.target, scene.topic)]
    assert (codecs, set(codecs)) == (sorted(codecs), {1, 2, 3, 4})
    assert len(codecs) < 5 + len(engines(scene)), "one for each codec, and another one where a chunk ends"
    scene.assert_copied()
    assert audit(scene.bare_run("audit"), AuditRequest()).outcome == "clean"


def test_what_is_packed_is_no_larger_than_the_target_takes(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"max.message.bytes": "6000"})
    records = [replace(record, value=bytes(range(256)) * 3) for record in numbered(60)]
    scene.source.produce(scene.topic, records, batch_num_messages=2, compression_type="none")
    report = scene.run(copy=BATCHES)
    assert report.outcome == "done", report.table()
    assert {engine for _, engine in engines(scene)} == {"batch/1"}
    assert 10 <= len(stored(scene.target, scene.topic)) < 30 <= len(stored(scene.source, scene.topic))
    scene.assert_copied()


def test_a_range_that_begins_or_ends_inside_of_a_batch_gets_its_part_of_it(scene: Scenario) -> None:
    """The broker unpacks what was packed anew. The second run packs records without compression and such of gzip."""
    scene.source.create(scene.topic)
    for number, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        scene.source.produce(scene.topic, numbered(200, 200 * number), compression_type=codec, linger_ms=500)
    for _ in range(7):
        report = scene.run(copy=BATCHES, max_records_per_run=150)
        assert report.outcome == "done", report.table()
    assert {engine for _, engine in engines(scene)} == {"batch/1"}
    found = [codec for codec, _ in stored(scene.target, scene.topic)]
    assert found == [0, 1, 1, 2, 2, 3, 3, 4, 4]
    scene.assert_copied()
    assert scene.watermark() == 1000
    assert audit(scene.bare_run("audit"), AuditRequest()).outcome == "clean"


def test_transactions_of_the_source(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.transaction(scene.topic, numbered(100))
    scene.source.transaction(scene.topic, numbered(50, 5_000), abort=True)
    scene.source.produce(scene.topic, numbered(100, 100))
    scene.source.transaction(scene.topic, numbered(5, 6_000), abort=True)
    report = scene.run(copy=BATCHES)
    assert (only(report).copied, only(report).not_visible) == (200, 58), report.table()
    assert engines(scene) == [(OffsetRange(0, 258), "batch/1")]
    scene.assert_copied()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ({}, {"max.message.bytes": "5000"}),
        ({"max.message.bytes": "3000000"}, {"max.message.bytes": "3000000", "segment.bytes": str(1 << 20)}),
    ],
    ids=["size", "segment"],
)
def test_batches_that_the_target_would_change_or_refuse_are_copied_record_by_record(
    scene: Scenario, source: dict[str, str], target: dict[str, str]
) -> None:
    scene.source.create(scene.topic, 1, source)
    scene.target.create(scene.topic, 1, target)
    scene.source.produce(scene.topic, numbered(20))
    large = numbered(100, 20, size=100 if len(target) < 2 else 20_000)
    scene.source.produce(scene.topic, large, compression_type="none", linger_ms=500, batch_size=4_000_000)
    report = scene.run(copy=BATCHES)
    assert report.outcome == "done", report.table()
    assert "record/1" in {engine for _, engine in engines(scene)}
    (turn,) = only(report).turns
    assert turn.engine == "record/1" and turn.why.startswith("the batch at offset ")
    scene.assert_copied()


def test_check_and_plan_say_which_engine_copies_and_why(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(5_000), linger_ms=500)
    (row,) = check(scene.bare_run()).engines
    assert (row.engine, row.partitions) == ("batch", 1)
    scene.target.create(scene.topic, 1, {"compression.type": "gzip"})
    (row,) = check(scene.bare_run()).engines
    assert (row.engine, row.why) == ("record", "the target topic has compression.type=gzip")
    scene.settings["copy"] = {"engine": "record"}
    assert [row.why for row in check(scene.bare_run()).engines] == ["copy.engine says so"]
    planned, _ = preview(scene.bare_run(), Request())
    assert planned.partitions[0].choice == ("record", "copy.engine says so")


@pytest.mark.parametrize(
    "target",
    [{"compression.type": "gzip"}, pytest.param({"cleanup.policy": "compact"}, marks=pytest.mark.slow)],
    ids=["compression", "compaction"],
)
def test_a_target_that_stores_other_batches_gets_records(scene: Scenario, target: dict[str, str]) -> None:
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, target)
    scene.source.produce(scene.topic, numbered(100))
    assert scene.run(copy=BATCHES).outcome == "done"
    assert {engine for _, engine in engines(scene)} == {"record/1"}
    scene.assert_copied()


@pytest.mark.parametrize(
    ("count", "each", "expected"),
    [
        pytest.param(4_999, 5_000, ["record/1"], marks=pytest.mark.slow),
        pytest.param(5_000, 20, ["batch/1"], marks=pytest.mark.slow),
        (5_000, 1, ["batch/1"]),
    ],
    ids=["short", "small batches", "one record a batch"],
)
def test_auto_takes_the_engine_that_carries_a_range_faster(
    scene: Scenario, count: int, each: int, expected: list[str]
) -> None:
    scene.source.create(scene.topic)
    records = [replace(record, value=b"x" * 40) for record in numbered(count)]
    scene.source.produce(scene.topic, records, linger_ms=500, batch_num_messages=each)
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert list(dict.fromkeys(engine for _, engine in engines(scene))) == expected
    assert set(only(report).engines) == set(expected)
    assert [turn.engine for turn in only(report).turns] == expected[1:]
    scene.assert_copied()


def test_the_report_says_why_another_engine_than_the_planned_one_copied(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.target.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    scene.settings["copy"] = BATCHES
    run = scene.bare_run("run-1")
    plan = steps.prepare(run, Request())
    scene.target.set(scene.topic, **{"compression.type": "gzip"})
    report = steps.report(run, plan, steps.replicate(run, plan, InProcess()).not_done)
    line = only(report)
    assert (line.begun, line.engines) == (("batch", "copy.engine says so"), ("record/1",)), report.table()
    assert [turn.why for turn in line.turns] == ["the target topic has compression.type=gzip"]


def test_a_batch_with_a_record_that_the_target_refuses(scene: Scenario) -> None:
    """The broker refuses the whole batch; the record engine finds the record, and its policy is obeyed."""
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"message.timestamp.before.max.ms": str(86_400_000 * 365 * 20)})
    scene.source.produce(scene.topic, numbered(50))
    scene.source.produce(scene.topic, [*numbered(20, 50), Rec(b"old", b"v", (), 1), *numbered(20, 70)])
    report = scene.run(copy=BATCHES)
    assert report.outcome == "failed"
    assert "offset 70" in str(only(report).error)
    assert scene.watermark() == 70
    report = scene.run(copy=BATCHES, failures={"policy": "skip"})
    assert (report.outcome, scene.watermark()) == ("done", 91), report.table()
    assert only(report).skipped == 1


def test_a_log_that_was_compacted(scene: Scenario) -> None:
    """Batches with holes are packed anew, those without any record passed over."""
    clean_every(scene.source, ms=200)
    scene.source.create(
        scene.topic, 1, {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    )
    scene.source.produce(scene.topic, [Rec(b"a", b"1"), Rec(b"b", b"1"), Rec(b"a", b"2"), Rec(b"b", b"2")])
    scene.source.produce(scene.topic, [Rec(b"c", b"1"), Rec(b"a", b"3")])
    await_compaction(scene, lambda offsets: offsets[:2] == [3, 4])
    scene.target.create(scene.topic)
    for most in (4, None):  # the first range ends between the records of a batch that has lost some of them
        assert scene.run(copy=BATCHES, max_records_per_run=most).outcome == "done"
    scene.assert_copied()
    assert {engine for _, engine in engines(scene)} == {"batch/1"}
    assert audit(scene.bare_run("audit"), AuditRequest()).outcome == "clean"


def test_a_range_that_ends_where_batches_were_compacted_away_has_a_leader_epoch(scene: Scenario) -> None:
    """Without it the next session could not see whether the source was truncated there."""
    clean_every(scene.source, ms=200)
    scene.source.create(
        scene.topic, 1, {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    )
    for records in ([Rec(b"a", b"1")], [Rec(b"b", b"%d" % number) for number in range(9)], [Rec(b"b", b"last")]):
        scene.source.produce(scene.topic, records)

    await_compaction(scene, lambda offsets: offsets[:2] == [0, 10])
    scene.target.create(scene.topic)
    assert scene.run(copy=BATCHES, max_records_per_run=5).outcome == "done"
    assert (scene.position().next_offset, scene.position().leader_epoch) == (5, 0)
    assert engines(scene) == [(OffsetRange(0, 5), "batch/1")]


def test_an_audit_compares_what_was_copied_in_batches(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(200))
    assert scene.run(copy=BATCHES).outcome == "done"
    report = audit(scene.bare_run("audit"), AuditRequest())
    assert report.outcome == "clean", report.text()
    [partition] = report.partitions
    assert (partition.by_content, partition.source_records, partition.target_records) == (200, 200, 200)
    scene.source.delete_before(scene.topic, 0, 200)
    report = audit(scene.bare_run("audit"), AuditRequest())
    assert (report.outcome, report.partitions[0].by_receipt) == ("clean", 200), report.text()
    [(key, value)] = receipts_of(scene).values()
    put_receipt(scene, key, value | {"digest": "0" * 32})
    assert audit(scene.bare_run("audit"), AuditRequest()).outcome == "differs"


def test_what_confluent_kafka_would_change_is_copied_and_compared(scene: Scenario) -> None:
    """Times of 0 and below, headers whose names are not UTF-8 or have a NUL: only the batch engine carries them."""
    scene.source.create(scene.topic)
    records = [
        RawRecord(b"%d" % number, b"v", ((b"\xff", b"1"), (b"a\0b", b"2")), timestamp=number - 1) for number in range(3)
    ]
    for record in records:
        produce_batch(scene.source.bootstrap, scene.topic, 0, [record])
    assert scene.run(copy=BATCHES).outcome == "done"
    [together] = batches(memoryview(raw_batch(records, offset=0)))
    assert stored(scene.target, scene.topic) == [(0, bytes(together.payload))]
    report = audit(scene.bare_run("audit"), AuditRequest())
    assert (report.outcome, report.partitions[0].by_receipt) == ("clean", 3), report.text()


def test_what_a_fenced_session_sent_is_not_visible(scene: Scenario) -> None:
    case = CopyCase(scene.source, scene.target, engine_name="batch")
    case.produce(*numbered(10))
    case.produce(*numbered(10, 10))
    with case.session() as zombie:
        zombie.fence()
        position = zombie.position()
        assert position is not None
        with case.engine.reader(case.task(20)) as reader:
            chunk = reader.copy_chunk(OffsetRange(0, 20), position, zombie, 10)  # sent, not committed
            case.copy(OffsetRange(0, 20))
            raised(Fenced, lambda: zombie.commit(chunk.moved(position), case.receipt(chunk)))
    assert case.values() == [record.value for record in case.produced()]


def test_a_session_that_was_fenced_before_sends_nothing(scene: Scenario) -> None:
    case = CopyCase(scene.source, scene.target, engine_name="batch")
    case.produce(*numbered(10))
    with case.session() as zombie:
        zombie.fence()
        position = zombie.position()
        assert position is not None
        case.copy(OffsetRange(0, 10))
        with case.engine.reader(case.task(10)) as reader:
            raised(Fenced, lambda: reader.copy_chunk(OffsetRange(0, 10), position, zombie, 10))
    assert case.values() == [record.value for record in case.produced()]


def test_a_session_that_ends_waits_for_what_is_under_way(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that a broker appended behind the abort's marker would hide all that follows for ever."""
    case, abort = CopyCase(scene.source, scene.target, engine_name="batch"), transactions.abort
    open_requests: list[int] = []
    for number in range(6):
        case.produce(*numbered(10, 10 * number))

    def noting(*told: Any) -> int:
        assert lane is not None
        open_requests.append(lane._leader.open_requests)
        return abort(*told)

    monkeypatch.setattr(transactions, "abort", noting)
    with case.fenced() as (session, _):
        assert isinstance(session, Atomic)
        assert session.batches is not None
        writer = session.batches.begin()
        lane = session._lane
        assert lane is not None
        scan = BatchScan(case.source_settings, case.key.source, 30.0, Throttling("", ""))
        with closing(scan):
            for batch in scan.visible(OffsetRange(0, 60)):
                writer.write(batch)
        assert lane._leader.open_requests
    assert open_requests == [0]
    wait_until(lambda: case.cluster.is_settled([case.key.target]))
    assert case.values() == []


def test_nothing_queues_in_a_session_that_sends_no_batches(scene: Scenario) -> None:
    """The record engine copies some ranges of every replication; a client that nobody polls must not gather anything."""
    case = CopyCase(scene.source, scene.target, engine_name="batch")
    with case.fenced() as (session, _):
        assert isinstance(session, Atomic)
        producer = session.sender.producer
        producer.poll(0)
        for _ in range(200):
            case.cluster.admin.list_topics(timeout=30)
        assert len(producer) == 0


def test_a_session_that_was_fenced_sends_no_batch(scene: Scenario) -> None:
    """It must not learn the identity of the session that fenced it: its batches would be part of that transaction."""
    case = CopyCase(scene.source, scene.target, engine_name="batch")
    with case.fenced() as (session, _), case.fenced():
        assert session.batches is not None
        raised(Fenced, session.batches.begin)


def test_a_session_that_ends_hides_nothing(scene: Scenario) -> None:
    """Its transaction is aborted at once, also if the producer itself has sent nothing in it."""
    case = CopyCase(scene.source, scene.target, engine_name="batch")
    case.produce(*numbered(10))
    assert isinstance(case.sink, KafkaSink)
    with case.fenced() as (session, position), case.engine.reader(case.task(10)) as reader:
        reader.copy_chunk(OffsetRange(0, 10), position, session, 10)
        assert not case.cluster.is_settled([case.key.target])
    wait_until(lambda: case.cluster.is_settled([case.key.target]))
    assert case.values() == []
