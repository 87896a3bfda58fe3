"""Records that only the batch engine can copy, wherever a range begins or ends, and whatever engine was chosen before."""

from __future__ import annotations

import gc
from contextlib import closing
from typing import Any

import pytest

from kafka_replication.kafka.callbacks import ReportingProducer
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.planning.backfill_request import parse
from kafka_replication.runs.audit import AuditRequest
from tests.integration.test_whole_batches import BATCHES, engines, stored
from tests.support import whole_runs
from tests.support.audits import audit
from tests.support.jobs import InProcess
from tests.support.other_clients import as_stored
from tests.support.raw_produce import FRAME, RawProducer, RawRecord, produce_batch, raw_batch
from tests.support.scenario import Rec, Scenario, numbered, only
from tests.support.waiting import wait_until

ODD = 150


def produced(scene: Scenario, odd: int = ODD, **field: Any) -> None:
    """300 records in batches of 100; this one is as no client of ours can send it."""
    scene.source.create(scene.topic)
    plain = [RawRecord(b"k%d" % n, b"v%d" % n, (), 1_700_000_000_000 + n) for n in range(300)]
    plain[odd] = RawRecord(b"odd", b"v", **{"timestamp": 1_700_000_000_000, **field})
    for first in range(0, 300, 100):
        produce_batch(scene.source.bootstrap, scene.topic, 0, plain[first : first + 100])


def finished(scene: Scenario, **more: Any) -> None:
    while scene.watermark() != 300:
        report = scene.run(**more)
        assert report.outcome == "done", report.table()
    scene.assert_copied()


@pytest.mark.parametrize(("most", "engine"), [(120, "batch"), (151, "auto"), (150, "auto")])
def test_a_range_that_begins_or_ends_inside_of_its_batch(scene: Scenario, most: int, engine: str) -> None:
    produced(scene, timestamp=0)
    finished(scene, copy={"engine": engine}, max_records_per_run=most)
    assert "batch/1" in {engine for _, engine in engines(scene)}


@pytest.mark.parametrize(
    ("name", "engine"),
    [(b"a\xff", "auto"), (b"a\0b", "batch"), (b"\0", "auto")],
    ids=["not UTF-8", "NUL", "nothing but NUL"],
)
def test_odd_header_names(scene: Scenario, name: bytes, engine: str) -> None:
    produced(scene, headers=((name, b"content"),))
    finished(scene, copy={"engine": engine, "chunk_records": 40}, max_records_per_run=120)
    assert any(name in records for _, records in stored(scene.target, scene.topic))  # a client does not show a NUL


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_a_nul_in_a_header_name_of_a_short_topic(scene: Scenario, codec: str | None) -> None:
    """The default engine carries it; around it lie records whose headers look like it, and are usual."""
    scene.source.create(scene.topic)
    usual = [Rec(b"k", b"a\0b", (("a", b""), ("", b"\0"), ("n", None))) for _ in range(50)]
    scene.source.produce(scene.topic, usual, compression_type=codec or "none", linger_ms=500)
    records = [RawRecord(b"k%d" % n, b"v", ((b"a", b""), (b"a\0b", b"content"))) for n in range(3)]
    produce_batch(scene.source.bootstrap, scene.topic, 0, records)
    scene.source.produce(scene.topic, usual)
    report = scene.run()
    assert report.outcome == "done", report.table()
    source, target = ([one for _, one in as_stored(side, scene.topic, 0)] for side in (scene.source, scene.target))
    assert target == source
    assert {engine for _, engine in engines(scene)} == {"record/1", "batch/1"}


@pytest.mark.parametrize("more", [{"copy": {"engine": "record"}}, {"filter": "key != 'other'"}])
def test_a_nul_in_a_header_name_is_named_where_only_the_record_engine_copies(
    scene: Scenario, more: dict[str, Any]
) -> None:
    produced(scene, headers=((b"a\0b", b"content"),))
    line = only(scene.run(**more))
    assert "offset 150" in (line.error or "") and "NUL" in (line.error or "")
    assert scene.position().next_offset == 150
    assert only(scene.run(failures={"policy": "skip"}, **more)).error is None
    assert (scene.position().skipped, scene.position().next_offset) == (1, 300)


def test_the_remedy_of_the_record_engine_works_where_the_partition_stands(scene: Scenario) -> None:
    produced(scene, timestamp=0)
    line = only(scene.run(copy={"engine": "record"}))
    assert "offset 150" in (line.error or "") and "copy.engine: batch" in line.remedy
    assert scene.position().next_offset == 150
    finished(scene)


@pytest.mark.parametrize("policy", ["quarantine"])
def test_nothing_is_set_aside_that_an_engine_can_copy(scene: Scenario, policy: str) -> None:
    produced(scene, timestamp=0)
    finished(scene, max_records_per_run=120, failures={"policy": policy})
    position = scene.position()
    assert (position.quarantined, position.skipped) == (0, 0)


def test_a_backfill(scene: Scenario) -> None:
    produced(scene, timestamp=0)
    scene.settings["copy"] = BATCHES
    scene.settings["start_from"] = "latest"
    assert scene.run().outcome == "nothing_to_do"
    for from_, until in ((145, 155), (120, 145), (155, 300)):
        request = parse(scene.replication(), topics=[scene.topic], from_=from_, until=until)
        report = whole_runs.backfill(scene.replication(), scene.connections, scene.store, InProcess(), request)
        assert report.outcome == "done", report.table()
    assert sum(range_.span for range_ in scene.position().coverage) == 180


def test_what_no_engine_can_copy_is_named(scene: Scenario) -> None:
    """The target would store other batches, so there is only the record engine."""
    produced(scene, timestamp=0)
    scene.target.create(scene.topic, 1, {"compression.type": "gzip"})
    for _ in range(2):
        line = only(scene.run(copy=BATCHES))
        assert "offset 150" in (line.error or "")
    assert scene.position().next_offset == 150


def test_a_whole_topic_of_such_records(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    for first in range(0, 600, 20):
        records = [RawRecord(b"k%d" % n, b"v", (), -(n % 3)) for n in range(first, first + 20)]
        produce_batch(scene.source.bootstrap, scene.topic, 0, records)
    report = scene.run(copy={"engine": "batch"})
    assert report.outcome == "done", report.table()
    assert len(engines(scene)) < 30
    scene.assert_copied()


def test_no_producer_is_left_of_sessions_that_ended_with_an_error(scene: Scenario) -> None:
    """In each of these batches all that follows the odd record is too large for one batch on the target: a session begins
    in vain, and another one copies that record alone.
    """
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"max.message.bytes": "5000"})
    for _ in range(3):
        large = [RawRecord(b"k", b"v" * 1_000)] * 9
        records = [RawRecord(b"k", b"v"), RawRecord(b"k", b"v", ((b"a\0b", b"content"),)), *large]
        produce_batch(scene.source.bootstrap, scene.topic, 0, records)
    before = producers()
    report = scene.run(copy=BATCHES, failures={"policy": "skip"})
    assert (report.outcome, scene.position().skipped) == ("done", 0), report.table()
    assert producers() <= before
    source, target = ([one for _, one in as_stored(side, scene.topic, 0)] for side in (scene.source, scene.target))
    assert target == source


def test_a_record_with_attributes_is_not_packed_anew(scene: Scenario) -> None:
    """With one of them librdkafka takes another time for the record. The record engine copies it, and what comes before it
    is copied first.
    """
    scene.source.create(scene.topic, 1, {"message.timestamp.type": "LogAppendTime"})
    wait_until(lambda: scene.source.is_settled([TopicPartition(scene.topic, 0)]))
    scene.source.produce(scene.topic, numbered(20), linger_ms=500)
    record = [RawRecord(b"k", b"v")]
    payload = bytearray(raw_batch(record)[FRAME:])
    payload[1] = 8
    with closing(RawProducer(scene.source.bootstrap)) as producer:
        producer.send(scene.topic, 0, raw_batch(record, payload=bytes(payload)))
    report = scene.run(copy=BATCHES)
    assert report.outcome == "done", report.table()
    assert [engine for _, engine in engines(scene)] == ["batch/1", "record/1"]
    assert scene.position().next_offset == 21
    assert audit(scene.bare_run("audit"), AuditRequest()).outcome == "clean"


def test_times_that_the_broker_gave(scene: Scenario) -> None:
    """Readers see one time for all records of a batch, whatever its producer wrote; the odd ones are copied with it."""
    scene.source.create(scene.topic, 1, {"message.timestamp.type": "LogAppendTime"})
    wait_until(lambda: scene.source.is_settled([TopicPartition(scene.topic, 0)]))
    for codec in ("none", "lz4"):
        scene.source.produce(scene.topic, numbered(50), compression_type=codec, linger_ms=500)
        odd = [RawRecord(b"k", b"v", ((b"a\0b", b"content"),), timestamp=-7), RawRecord(b"k", b"w", timestamp=2**50)]
        produce_batch(scene.source.bootstrap, scene.topic, 0, odd * 20)
    scene.target.create(scene.topic)
    report = scene.run(copy={"engine": "auto", "chunk_records": 30}, max_records_per_run=75)
    while scene.watermark() != 180:
        assert report.outcome == "done", report.table()
        report = scene.run(copy={"engine": "batch"}, max_records_per_run=75)
    source, target = ([one for _, one in as_stored(side, scene.topic, 0)] for side in (scene.source, scene.target))
    assert target == source and len({record.timestamp for record in source}) > 1
    assert (scene.position().skipped, engines(scene)[-1][1]) == (0, "batch/1")
    assert audit(scene.bare_run("audit"), AuditRequest()).outcome == "clean"


def producers() -> int:
    """That this process has now."""
    gc.collect()
    return sum(isinstance(each, ReportingProducer) for each in gc.get_objects())
