"""What would lose or double records is refused, named, and nothing else is held up by it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.copying.protocol import Copier
from kafka_replication.kafka.record_engine import RecordEngine
from kafka_replication.kafka.sink import KafkaSink
from kafka_replication.ledger.entries import POSITIONS, Ids, Position
from kafka_replication.model.errors import Fenced
from kafka_replication.runs import checking, steps
from kafka_replication.runs.run import Request
from kafka_replication.spark.jobs import Job
from kafka_replication.targets.start_offsets import StartOffsets
from tests.support import watermarks
from tests.support.actions import copied_once
from tests.support.checker import read
from tests.support.failed import lose_store
from tests.support.jobs import InProcess, copies
from tests.support.scenario import Rec, Scenario, numbered, only


def refused(scene: Scenario, *words: str, partition: int = 0) -> None:
    """A run fails for ``partition``, its error says all of ``words``, and neither target nor watermark move."""
    before = read(scene.target.bootstrap, scene.topic, partition) if scene.target.partitions(scene.topic) else None
    watermark = scene.watermark(partition)
    report = scene.run()
    assert report.outcome == "failed", report.table()
    line = only(report, partition)
    for word in words:
        assert word in (line.error or ""), line.error
    assert line.remedy
    assert scene.watermark(partition) == watermark
    if before is not None:
        assert read(scene.target.bootstrap, scene.topic, partition) == before


def test_oversized_record(scene: Scenario) -> None:
    scene.source.create(scene.topic, 2, {"max.message.bytes": "2000000"})
    scene.target.create(scene.topic, 2, {"max.message.bytes": "100000"})
    big = Rec(b"big", os.urandom(150_000))
    scene.source.produce(scene.topic, [*numbered(730), big, *numbered(100, 1_000)])
    scene.source.produce(scene.topic, numbered(200), 1)
    report = scene.run()
    assert report.outcome == "failed"
    error = only(report, 0).error or ""
    for word in (f"{scene.topic}-0", "partition 0", "offset 730", f"{150_000 + 3} bytes", "max.message.bytes=100000"):
        assert word in error, error
    assert only(report, 1).error is None
    assert scene.check(0, until=730).clean
    scene.assert_copied(1)
    assert (scene.watermark(0), scene.watermark(1)) == (730, 200)

    scene.target.set(scene.topic, max_message_bytes="2000000")
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert [(str(each.range), each.copied) for each in report.ranges] == [("[730, 831)", 101)]
    scene.assert_copied(0, 1)


def test_a_record_that_is_larger_than_the_whole_queue_of_the_client(scene: Scenario) -> None:
    """Zeros that compress a thousandfold: the topic's limits let them pass, the producer's 32 MiB do not."""
    scene.source.create(scene.topic)
    big: dict[str, Any] = {
        "message_max_bytes": 200 << 20,
        "queue_buffering_max_kbytes": 1 << 20,
        "compression_type": "gzip",
    }
    scene.source.produce(scene.topic, numbered(3))
    scene.source.produce(scene.topic, [Rec(b"big", bytes(65 << 20))], **big)
    report = scene.run(copy={"engine": "record"})
    assert report.outcome == "done", report.table()
    scene.assert_copied(0)


@pytest.mark.parametrize("chunk", [500, pytest.param(1, marks=pytest.mark.slow)])
def test_oversized_record_first_and_last(scene: Scenario, chunk: int) -> None:
    """At the very start nothing can be copied before it; a record of just the limit's size is no reason to refuse."""
    scene.source.create(scene.topic, 2, {"max.message.bytes": "2000000"})
    scene.target.create(scene.topic, 2, {"max.message.bytes": "100000"})
    scene.source.produce(scene.topic, [Rec(b"big", os.urandom(150_000)), *numbered(3)])
    scene.source.produce(
        scene.topic, [Rec(b"fits", os.urandom(99_800)), *numbered(3), Rec(b"big", os.urandom(100_001))], 1
    )
    report = scene.run(copy={"chunk_records": chunk})
    assert "offset 0 " in (only(report, 0).error or "") and "offset 4 " in (only(report, 1).error or ""), report.table()
    assert (scene.watermark(0), scene.watermark(1)) == (0, 4)
    assert scene.check(1, until=4).clean


def test_timestamp_that_the_target_refuses(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"message.timestamp.before.max.ms": str(20 * 365 * 86_400_000)})
    scene.source.produce(scene.topic, [*numbered(10), Rec(b"old", b"v", (), 1_000), *numbered(10, 10)])
    report = scene.run()
    error = only(report).error or ""
    limit = "difference" if scene.target.is_before_3_6 else "before"
    assert "offset 10 " in error and f"message.timestamp.{limit}.max.ms" in error, error
    assert scene.watermark() == 10
    assert scene.check(until=10).clean


def test_record_without_key_for_a_compacted_target(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"cleanup.policy": "compact"})
    scene.source.produce(scene.topic, [*numbered(10), Rec(None, b"no key"), *numbered(10, 10)])
    report = scene.run()
    assert "offset 10 " in (only(report).error or ""), report.table()
    assert scene.watermark() == 10
    assert scene.check(until=10).clean


def test_source_recreated(scene: Scenario) -> None:
    copied_once(scene)
    scene.source.delete(scene.topic)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(80, 1_000))
    refused(scene, "source topic was re-created", f"{scene.topic}-0")


def test_source_vanished(scene: Scenario) -> None:
    copied_once(scene)
    scene.source.delete(scene.topic)
    refused(scene, "is gone", f"{scene.topic}-0")


def test_target_recreated(scene: Scenario) -> None:
    copied_once(scene)
    scene.source.produce(scene.topic, numbered(10, 50))
    scene.target.delete(scene.topic)
    refused(scene, "target topic", "re-created or deleted")
    scene.target.create(scene.topic)
    refused(scene, "target topic", "re-created or deleted")
    assert read(scene.target.bootstrap, scene.topic, 0) == []


def test_retention_overran(scene: Scenario) -> None:
    copied_once(scene)
    scene.source.produce(scene.topic, numbered(30, 50))
    scene.source.delete_before(scene.topic, 0, 62)
    refused(scene, "[50, 62)", "can no longer be read")


def test_deleted_but_already_copied_is_no_loss(scene: Scenario) -> None:
    copied_once(scene)
    scene.source.produce(scene.topic, numbered(30, 50))
    scene.source.delete_before(scene.topic, 0, 50)
    assert only(scene.run()).copied == 30


def test_records_already_on_the_target(scene: Scenario) -> None:
    """Refused at the opening, and written behind when that is asked for."""
    for side in (scene.source, scene.target):
        side.create(scene.topic)
    old = numbered(5, 900)
    scene.target.produce(scene.topic, old)
    scene.source.produce(scene.topic, numbered(40))
    refused(scene, "already holds records", "offset 0")
    assert scene.watermark() is None
    report = scene.run(on_existing_target="append")
    assert (report.outcome, report.notes) == ("done", ()), report.table()
    found = scene.check()
    assert len(found.foreign) == 5
    assert not (found.lost or found.doubled or found.reordered or found.altered)
    assert [record.key for _, record in read(scene.target.bootstrap, scene.topic, 0)][:5] == [each.key for each in old]


def test_a_target_that_holds_what_the_source_holds_is_told_before_and_after_it_is_written_behind(
    scene: Scenario,
) -> None:
    """Ledger and store are lost: `append` would copy everything a second time, and nothing else would say so."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(40))
    assert scene.run().outcome == "done"
    key = scene.key()
    for lost in (key.entry("position"), key.entry("verified"), key.entry("start")):
        scene.target.produce(POSITIONS, [Rec(lost, None)], key.ledger_partition)
    lose_store(scene)
    scene.settings |= {"on_existing_target": "append"}
    said = (
        f"the last record of {scene.topic}-0 on the target, at offset 39, is the one that the source has at offset 39"
    )
    run = scene.bare_run()
    planned, found = steps.preview(run, Request())
    assert not planned.refused
    (warning,) = [finding for finding in found if finding.what.startswith(said)]
    assert (warning.severity, "restore the ledger topics" in warning.remedy) == ("warning", True)
    assert any(finding.what.startswith(said) for finding in checking.check(run).findings)
    report = scene.run()
    assert (report.outcome, len(scene.check().doubled)) == ("done", 40)
    assert said in report.table() and any(said in note for note in report.notes)


def test_an_occupied_partition_starts_later_where_the_first_run_would_have_started_it(scene: Scenario) -> None:
    """It holds up no other partition, and `latest` is not resolved again."""
    for side in (scene.source, scene.target):
        side.create(scene.topic, 2)
    scene.target.produce(scene.topic, numbered(5, 900), 1)
    scene.source.produce(scene.topic, numbered(40), 0)
    scene.source.produce(scene.topic, numbered(40), 1)
    report = scene.run(start_from="latest")
    assert {each.key.source.partition for each in report.failed} == {1}, report.table()
    assert scene.position(0).start == 40
    assert scene.bare_run().view().starts[scene.key(1)].offset == 40
    scene.source.produce(scene.topic, numbered(7, 40), 0)
    scene.source.produce(scene.topic, numbered(7, 40), 1)
    report = scene.run(start_from="latest")
    assert {each.key.source.partition for each in report.failed} == {1}, report.table()
    assert scene.watermark(0) == 47
    report = scene.run(start_from="latest", on_existing_target="append")
    assert report.outcome == "done", report.table()
    assert scene.position(1).start == 40
    found = scene.check(1, from_=40)
    assert len(found.foreign) == 5
    assert not (found.lost or found.doubled or found.reordered or found.altered)


def test_a_start_that_was_changed_before_its_partition_was_opened(scene: Scenario) -> None:
    for side in (scene.source, scene.target):
        side.create(scene.topic)
    scene.target.produce(scene.topic, numbered(5, 900))
    scene.source.produce(scene.topic, numbered(40))
    refused(scene, "already holds records")
    report = scene.run(start_from="latest", on_existing_target="append")
    assert report.outcome == "nothing_to_do", report.table()
    assert scene.position().start == 40, "nothing was copied twice"


def test_an_opening_fences_the_one_before(scene: Scenario) -> None:
    for side in (scene.source, scene.target):
        side.create(scene.topic)
    targets = [scene.bare_run().clusters.target for _ in range(3)]
    openings = [StartOffsets(scene.name, target) for target in targets]
    old, new, third = openings
    start = Position(generation=1, ids=Ids("SRC", "s", "t"), start=5, next_offset=5)
    try:
        targets[0].ledger.ensure(scene.replication())
        assert old.fence().positions == new.fence().positions == {}
        new.commit({scene.key(): start}, {})
        with pytest.raises(Fenced):
            old.commit({scene.key(): replace(start, start=9, next_offset=9)}, {})
        assert third.fence().positions[scene.key()].start == 5
    finally:
        for each in openings:
            each.close()


def test_aborted_attempts_on_the_target_are_no_records(scene: Scenario) -> None:
    for side in (scene.source, scene.target):
        side.create(scene.topic)
    scene.target.transaction(scene.topic, numbered(5, 900), abort=True)
    scene.source.produce(scene.topic, numbered(40))
    assert scene.run().outcome == "done"
    scene.assert_copied()


@pytest.mark.parametrize("abort", [False, True])
def test_foreign_writer_between_the_chunks_of_a_run(scene: Scenario, abort: bool) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(200))
    scene.settings |= {"copy": {"chunk_records": 50}}
    job = scene.copy_job()

    def intrude(_: CopyTask, result: CopyResult) -> None:
        if result.chunks == 2:
            scene.target.transaction(scene.topic, [Rec(b"foreign", b"record")], abort=abort)

    copier = Copier(
        engine=RecordEngine(job.source, job.replication.copying),
        sink=KafkaSink(job.target, job.replication.copying),
        settings=job.replication.copying,
        progress=intrude,
    )
    result = copier.copy(copies(job)[0])
    if abort:  # nobody sees it
        assert (result.error, result.copied) == (None, 200)
        return
    assert result.copied == 100
    assert f"{scene.topic}-0 on the target holds a record at offset 102 that the ledger does not know" in (
        result.error or ""
    )
    report = scene.run()
    [failed] = [each for each in report.ranges if each.error]
    assert "offset 102 that the ledger does not know" in (failed.error or "")
    assert scene.watermark() == 100


def test_foreign_writer_between_runs(scene: Scenario) -> None:
    copied_once(scene)
    scene.target.produce(scene.topic, numbered(1, 900))
    scene.source.produce(scene.topic, numbered(10, 50))
    refused(scene, "a record at offset", "the ledger does not know")


def test_renamed_replication_does_not_double(scene: Scenario) -> None:
    copied_once(scene)
    before, scene.name = scene.name, f"{scene.name}-renamed"
    refused(scene, f"belongs to the replication {before}")


REFUSE: dict[str, Any] = {"target_topics": {"partitions": "refuse"}}


def test_fewer_target_partitions(scene: Scenario) -> None:
    scene.source.create(scene.topic, 3)
    scene.target.create(scene.topic, 2)
    for partition in range(3):
        scene.source.produce(scene.topic, numbered(30), partition)
    report = scene.run(**REFUSE)
    assert {each.key.source.partition for each in report.failed} == {2}
    assert "has 2 partitions, the source 3" in (only(report, 2).error or "")
    assert "--partitions 3" in only(report, 2).remedy
    assert [scene.watermark(partition) for partition in range(3)] == [30, 30, None]
    assert scene.run().outcome == "done"
    assert scene.target.partitions(scene.topic) == 3
    scene.assert_copied(0, 1, 2)


def test_a_source_that_grew_beyond_its_target(scene: Scenario) -> None:
    copied_once(scene, partitions=2)
    scene.source.grow(scene.topic, 3)
    for partition in range(3):
        scene.source.produce(scene.topic, numbered(30, 50), partition)
    report = scene.run(**REFUSE)
    assert [(each.key.source.partition, each.copied) for each in sorted(report.ranges, key=lambda r: r.key)] == [
        (0, 30),
        (1, 30),
        (2, 0),
    ]
    assert "has 2 partitions, the source 3" in (only(report, 2).error or "")
    assert [scene.watermark(partition) for partition in range(3)] == [80, 80, None]
    assert scene.run().outcome == "done"
    assert scene.target.partitions(scene.topic) == 3
    scene.assert_copied(0, 1, 2)


def test_a_recreated_source_with_more_partitions_changes_nothing_on_the_target(scene: Scenario) -> None:
    copied_once(scene)
    scene.source.delete(scene.topic)
    scene.source.create(scene.topic, 2)
    assert scene.run().outcome == "failed"
    assert scene.target.partitions(scene.topic) == 1


def test_watermark_ahead_of_the_ledger(scene: Scenario) -> None:
    copied_once(scene)
    watermarks.somebody_moves(scene.store, scene.key(), 70)
    scene.source.produce(scene.topic, numbered(40, 50))
    refused(scene, "below 70", "ends at 50")


def test_a_watermark_that_somebody_else_moved_holds_up_no_other(scene: Scenario) -> None:
    """Also the one of a partition that the run had nothing to do for."""
    copied_once(scene, partitions=3)
    scene.source.produce(scene.topic, numbered(10, 50), 0)
    scene.source.produce(scene.topic, numbered(10, 50), 1)

    def move(_: Job) -> None:
        for partition in (1, 2):
            mark = scene.store.watermarks(scene.name)[scene.key(partition)]
            ids = {"source_topic_id": mark.source_topic_id, "target_topic_id": mark.target_topic_id}
            watermarks.advance(scene.store, scene.key(partition), 7, mark.version, generation=2, **ids)

    report = scene.run(InProcess(then=move))
    assert {line.key.source.partition for line in report.failed} == {1, 2}, report.table()
    assert all("generation 1 is over" in (line.error or "") and line.remedy for line in report.failed)
    assert scene.watermark(0) == 60


def test_one_refused_topic_does_not_hold_up_another(scene: Scenario) -> None:
    copied_once(scene)
    other = f"{scene.name}.other"
    scene.source.create(other)
    scene.source.produce(other, numbered(20))
    scene.source.delete(scene.topic)
    scene.source.create(scene.topic)
    report = scene.run(topics={"include": [f"^{scene.name}[.]"]})
    assert report.outcome == "failed"
    assert [
        (each.key.source.topic, each.copied, bool(each.error)) for each in sorted(report.ranges, key=lambda r: r.key)
    ] == [
        (scene.topic, 0, True),
        (other, 20, False),
    ]
