"""A target that lost the end of its log: what receipts prove to have stood there is copied again, in order."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.alerting.open_causes import CauseKey, Kind
from kafka_replication.config import Copy
from kafka_replication.kafka.commit import Atomic
from kafka_replication.kafka.read_back import segment_reader
from kafka_replication.ledger.placement import KafkaSegments
from kafka_replication.model.errors import TargetLost
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.planning.plan import State
from kafka_replication.reporting.causes import partition_causes
from kafka_replication.reporting.ledger import ledger_table
from kafka_replication.runs import steps
from kafka_replication.runs.audit import audit
from kafka_replication.runs.replicating import replicate
from kafka_replication.runs.reporting import standing
from kafka_replication.runtime.deadline import NEVER
from kafka_replication.runtime.events import Event
from kafka_replication.verification.verify import VerifyTask, verify
from stack.kafka_cluster import KafkaCluster
from tests.golden.first_entries import RECEIPT, segment
from tests.support.checker import read
from tests.support.damage import forgotten
from tests.support.intervals import at, copied, interval
from tests.support.jobs import InProcess
from tests.support.scenario import ALL, Scenario, numbered, only

CHUNKS: dict[str, Any] = {"copy": {"chunk_records": 25}}
EVENT = "event"  # the attribute of a log record


def lose_the_end(scene: Scenario, cluster: KafkaCluster, partitions: int = 1) -> None:
    """Of 100 verified records the target has 60 left, in each partition."""
    scene.settings |= CHUNKS
    scene.source.create(scene.topic, partitions)

    def copy(count: int, first: int = 0) -> None:
        for number in range(partitions):
            scene.source.produce(scene.topic, numbered(count, first), number)
        assert [line.copied for line in scene.run().ranges] == [count] * partitions

    copy(60)
    with forgotten(scene, cluster):
        copy(40, 60)
    assert scene.watermark() == 100


def ledger_text(scene: Scenario) -> str:
    view = scene.bare_run().view()
    return ledger_table(view, {})


def test_it_is_copied_again_before_what_is_new(
    own_scene: Scenario, own_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    scene = own_scene
    lose_the_end(scene, own_cluster)
    assert standing(scene.bare_run())[0].plan.state is State.TARGET_TRUNCATED
    receipts = scene.bare_run().clusters.ledger.receipts({scene.key(): None}).all(scene.key())
    taken = [receipt for receipt in receipts if receipt.range.from_ >= 60]
    scene.source.produce(scene.topic, numbered(20, 100))
    scene.settings |= {"mend": "report"}
    assert "set mend: repair" in standing(scene.bare_run())[0].plan.remedy
    before, size = scene.position(), scene.target.size(scene.topic)
    told = scene.run()
    assert told.outcome == "failed" and only(told).copied == 0 and "mend: repair" in (only(told).remedy or "")
    assert all(one.digest in (only(told).error or "") for one in taken), told.table()
    assert (scene.position(), scene.watermark(), scene.target.size(scene.topic)) == (before, 100, size)
    scene.settings |= {"mend": "repair"}
    with caplog.at_level(logging.WARNING):
        report = scene.run()
    assert report.outcome == "done", report.table()
    assert only(report).copied == 60 and "[60, 100)" in "".join(report.notes)
    assert Event.MENDED in [getattr(record, EVENT, "") for record in caplog.records]
    scene.assert_copied()
    [cause] = partition_causes(scene.replication(), standing(scene.bare_run()))
    assert (cause.key, len(cause.places)) == (CauseKey(Kind.REPAIRED, scene.topic), len(taken))
    removal = scene.bare_run().view().of(scene.key(), 1).removed
    assert len(removal.taken_back) == len(taken) > 0
    for kept, gone in zip(removal.taken_back, taken, strict=True):
        assert kept.startswith(f"{gone.range}: {gone.count} records, {gone.digest_kind} {gone.digest}, at target")
        assert f"0: {gone.parts[0].offsets}" in kept
        assert kept in "".join(report.notes) and any(kept in line for line in caplog.messages)
    assert all(f"TAKEN BACK {scene.topic}-0 {kept}" in ledger_text(scene) for kept in removal.taken_back)
    assert scene.watermark() == 120 and str(scene.bare_run().view().of(scene.key(), 1).verified.coverage) == "[0, 120)"
    scene.idle_run()
    assert audit(scene.bare_run()).outcome == "clean"


@pytest.mark.slow
def test_the_next_data_interval_copies_it_before_its_own(own_scene: Scenario, own_cluster: KafkaCluster) -> None:
    """No later run would: the interval that had copied it has succeeded."""
    scene = own_scene
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [at(number / 30, number) for number in range(90)])
    assert copied(interval(scene, 0)) == 30
    with forgotten(scene, own_cluster):
        assert copied(interval(scene, 1)) == 30
    report = interval(scene, 2)
    assert copied(report) == 60 and "[30, 60) are copied again" in "".join(report.notes), report.table()
    scene.assert_copied()
    assert (scene.watermark(), copied(interval(scene, 1))) == (90, 0)


@pytest.mark.slow
def test_what_the_source_lost_too_is_left_to_a_person_and_stops_no_other(
    own_scene: Scenario, own_cluster: KafkaCluster
) -> None:
    scene = own_scene
    lose_the_end(scene, own_cluster, partitions=2)
    scene.source.delete_before(scene.topic, 0, 61)
    before = scene.position()
    report = scene.run()
    assert report.outcome == "failed", report.table()
    error = only(report).error or ""
    assert "lost its last 4" in error and "no longer has all of [60, 100)" in error, report.table()
    assert (scene.position(), scene.watermark()) == (before, 100)
    assert (only(report, 1).error, only(report, 1).copied) == (None, 40)
    scene.assert_copied(1)


@pytest.mark.slow
def test_a_chunk_without_records_behind_it_lets_nothing_newer_come_first(
    own_scene: Scenario, own_cluster: KafkaCluster
) -> None:
    scene = own_scene
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(60))
    assert only(scene.run()).copied == 60
    with forgotten(scene, own_cluster):
        scene.source.produce(scene.topic, numbered(40, 60))
        assert only(scene.run()).copied == 40
        scene.source.transaction(scene.topic, numbered(5, 1_000), abort=True)
        assert only(scene.run()).copied == 0
    scene.source.produce(scene.topic, numbered(20, 100))
    report = scene.run()
    assert report.outcome == "done" and only(report).copied == 60, report.table()
    scene.assert_copied()


@pytest.mark.slow
def test_a_chunk_that_another_partition_still_shows_is_not_doubled(
    own_scene: Scenario, own_cluster: KafkaCluster
) -> None:
    """It lies in both target partitions, and one of them lost its end: that is left to a person. Nobody writes there until
    then, because the log would grow over the place of what is lost.
    """
    scene = own_scene
    scene.settings |= {"partitioning": "by_key"}
    scene.source.create(scene.topic, 2)
    scene.target.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(100))
    assert only(scene.run()).copied == 100
    with forgotten(scene, own_cluster, partition="0"):
        scene.source.produce(scene.topic, numbered(100, 100))
        assert only(scene.run()).copied == 100
    stands = [read(scene.target.bootstrap, scene.topic, number) for number in (0, 1)]
    scene.source.produce(scene.topic, numbered(200, 1_000), 1)
    report = scene.run()
    assert report.outcome == "failed" and "would be doubled" in (only(report).error or ""), report.table()
    assert "lost its last" in (only(report, 1).error or ""), report.table()
    assert [read(scene.target.bootstrap, scene.topic, number) for number in (0, 1)] == stands


@pytest.mark.slow
def test_a_plan_from_before_it_is_told(own_scene: Scenario, own_cluster: KafkaCluster) -> None:
    """A task that is repeated would copy newer offsets before those that are lost."""
    scene = own_scene
    scene.settings |= CHUNKS
    scene.source.create(scene.topic)
    scene.target.create(scene.topic)
    scene.source.produce(scene.topic, numbered(60))
    with forgotten(scene, own_cluster):
        assert only(scene.run()).copied == 60
        scene.source.produce(scene.topic, numbered(20, 60))
        stale = steps.prepare(scene.bare_run("stale"), ALL)
        assert [str(planned.copy) for planned in stale.to_copy] == ["[60, 80)"]
    steps.prepare(scene.bare_run("another"), ALL)
    (failed,) = replicate(scene.bare_run("stale"), stale, InProcess()).not_copied
    assert "has lost [0, 60) since [60, 80) was planned" in (failed.error or "") and failed.retriable
    anew = steps.prepare(scene.bare_run("stale"), ALL)
    assert [str(planned.copy) for planned in anew.to_copy] == ["[0, 80)"]
    assert scene.run().outcome == "done"
    scene.assert_copied()


def test_a_session_that_reads_past_the_end_says_that_the_target_lost_it(scene: Scenario) -> None:
    """Another leader may be elected between the question for the end and the reading."""
    scene.target.create(scene.topic)
    scene.target.produce(scene.topic, numbered(10))
    client, at = scene.bare_run().clusters.target_connection, TopicPartition(scene.topic, 0)
    session = Atomic(scene.key(), client, Copy(), NEVER)
    assert session.first_record(at, OffsetRange(9, 10)) == 9
    with pytest.raises(TargetLost, match="ends at 10, but our records were there up to 90"):
        session.first_record(at, OffsetRange(89, 90))


def test_what_is_read_back_above_the_end_of_the_log_is_lost(scene: Scenario) -> None:
    """Reading again does not bring it back; the next run mends it."""
    scene.target.create(scene.topic)
    scene.target.produce(scene.topic, numbered(10))
    receipt = replace(RECEIPT, count=10, placement=KafkaSegments((segment(0, 5, 14, RECEIPT.digest),)))
    client = scene.bare_run().clusters.target_connection
    with segment_reader(client, scene.key(), stall=1.0) as reader:
        result = verify(VerifyTask(scene.key(), (receipt,), "digest"), reader)
    assert "ends at 10, but our records were at [5, 15)" in (result.error or "")
    assert "run again" in result.remedy and not result.retriable
