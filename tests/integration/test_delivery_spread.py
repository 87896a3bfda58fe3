"""Delivery profiles without transactions where records go to other target partitions: what is counted stays exact."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.kafka.acknowledged import AcknowledgedProducer
from kafka_replication.kafka.acknowledged_session import AcknowledgedSession
from kafka_replication.model.failures import Action
from kafka_replication.planning.backfill_request import parse
from kafka_replication.runs import backfill as backfilling
from kafka_replication.runs.audit import AuditRequest, audit
from kafka_replication.runs.failed.deciding import Decision
from kafka_replication.runs.failed.handling import Asked, handle
from kafka_replication.runs.reset import reset_topic
from kafka_replication.runs.run import open_run
from kafka_replication.runtime import failpoints
from kafka_replication.spark.jobs import Job, JobEnd
from kafka_replication.spark.launcher import Deliver
from kafka_replication.verification.audit import Kind
from tests.support.checker import Record, read
from tests.support.children import end_of, run_process
from tests.support.jobs import InProcess
from tests.support.scenario import Rec, Scenario

BASE = 1_700_000_000_000
AT_ONCE = 4


class Killed(BaseException):
    """What ends the process elsewhere."""


def fill(scene: Scenario, partitions: int, count: int, first: int = 0) -> None:
    """So many records in each source partition, some of them the very same in each."""
    for partition in range(partitions):
        records = [
            Rec(b"same", b"same", (), BASE)
            if n % 10 == 9
            else Rec(b"p%d-%d" % (partition, n % 20), b"%d" % n, (), BASE)
            for n in range(first, first + count)
        ]
        scene.source.produce(scene.topic, records, partition)


def logs(bootstrap: str, topic: str, partitions: int) -> list[list[Record]]:
    return [[record for _, record in read(bootstrap, topic, number)] for number in range(partitions)]


def judged(scene: Scenario, sources: int, targets: int) -> tuple[int, int]:
    """How many records the target lacks, and how many it has beyond those of the source. The first copies of the
    records of one source partition are in their order in each target partition.
    """
    source = logs(scene.source.bootstrap, scene.topic, sources)
    target = logs(scene.target.bootstrap, scene.topic, targets)
    wanted, there = Counter(r for log in source for r in log), Counter(r for log in target for r in log)
    assert not there.keys() - wanted.keys()
    for log in target:
        for one in source:
            assert_in_order(log, one)
    return (wanted - there).total(), (there - wanted).total()


def assert_in_order(target: Sequence[Record], source: Sequence[Record]) -> None:
    own = {record: number for number, record in enumerate(source) if record.key not in (b"same", b"large")}
    first = list(dict.fromkeys(own[record] for record in target if record in own))
    assert first == sorted(first)


def counted(scene: Scenario) -> tuple[int, int]:
    """What the ledger says of all source partitions: lost, and doubled."""
    entries = scene.bare_run().view().verified.values()
    return sum(entry.lost_in_delivery for entry in entries), sum(entry.duplicates for entry in entries)


def assert_audited(scene: Scenario, lost: int, doubled: int) -> None:
    found = audit(scene.bare_run())
    assert found.outcome == "clean", found.text()
    sums = [sum(getattr(one, term) for one in found.partitions) for term in ("lost_in_delivery", "duplicates")]
    assert sums == [lost, doubled], found.text()


def dies_at(scene: Scenario, patch: pytest.MonkeyPatch, point: str) -> None:
    """A run that ends there, without another word to any broker but what is on its way."""

    def die() -> None:
        raise Killed(point)

    failpoints._reached.clear()
    with patch.context() as inner:
        inner.setenv(failpoints.VARIABLE, point)
        inner.setattr(failpoints, "die", die)
        with pytest.raises(Killed):
            scene.run(InProcess(at_once=AT_ONCE))


def test_every_chunk_that_a_dead_copier_left_is_counted(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies behind the records, behind the receipt, and while it writes down what it has counted."""
    spreading = {"partitioning": "by_key", "target_topics": {"partitions": 3}}
    scene.settings |= {"delivery": "at_least_once", "copy": {"chunk_records": 20}, **spreading}
    scene.source.create(scene.topic, 4)
    fill(scene, 4, 40)
    for point in ("P1:3", "P2:4"):
        dies_at(scene, monkeypatch, point)
    fill(scene, 4, 4, first=40)  # the run before may have died when it counted, and a run without work does not count
    dies_at_second_count(scene, monkeypatch)
    fill(scene, 4, 16, first=44)
    report = scene.run()
    assert report.outcome == "done", report.table()
    lost, doubled = judged(scene, 4, 3)
    assert (lost, doubled) == counted(scene) and not lost and doubled
    assert [scene.watermark(number) for number in range(4)] == [60] * 4
    assert_audited(scene, 0, doubled)
    scene.idle_run()

    scene.settings["delivery"] = "exactly_once"
    fill(scene, 4, 10, first=60)
    assert scene.run().outcome == "done"
    assert judged(scene, 4, 3) == counted(scene) == (0, doubled)
    scene.idle_run()  # nothing that was left over counts as somebody else's record
    assert_audited(scene, 0, doubled)


class Without(InProcess):
    """The workers of this source partition do not answer."""

    def __init__(self, partition: int) -> None:
        super().__init__()
        self._partition = partition

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        tasks = [task for task in job.tasks if task.key.source.partition != self._partition]
        return super().submit(replace(job, tasks=tasks), deliver)


@pytest.mark.slow
def test_what_a_source_partition_left_counts_before_it_copies_again(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later, another one has a record of the same content. Nor does one at rest keep records of others from being
    found.
    """
    scene.settings |= {"delivery": "at_least_once", "partitioning": "by_key", "target_topics": {"partitions": 2}}
    scene.source.create(scene.topic, 2)
    same = [Rec(b"same", b"same", (), BASE)]
    scene.source.produce(scene.topic, same, 1)
    dies_at(scene, monkeypatch, "P1")
    scene.source.produce(scene.topic, [Rec(b"k", b"v", (), BASE)], 0)
    assert scene.run(Without(1)).outcome == "failed"
    assert counted(scene) == (0, 1)
    scene.source.produce(scene.topic, same, 0)
    assert scene.run().outcome == "done"
    assert judged(scene, 2, 2) == counted(scene) == (0, 1)
    assert_audited(scene, 0, 1)

    scene.settings["delivery"] = "exactly_once"  # and nothing more of partition 1
    for number in range(2):
        scene.source.produce(scene.topic, [Rec(b"k", b"%d" % number, (), BASE)], 0)
        assert scene.run().outcome == "done"
    scene.target.produce(scene.topic, [Rec(b"foreign", b"nobody's")], 1)
    scene.source.produce(scene.topic, [Rec(b"k", b"last", (), BASE)], 0)
    report = scene.run()
    assert report.outcome == "failed" and "1 records that no source has" in report.table()


@pytest.mark.slow
def test_topics_that_were_created_again_with_fewer_partitions(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """The receipts and positions from before are about other topics."""
    scene.settings |= {"delivery": "at_least_once", "partitioning": "by_key", "copy": {"chunk_records": 20}}
    scene.source.create(scene.topic, 3)
    scene.target.create(scene.topic, 2)
    fill(scene, 3, 40)
    assert scene.run().outcome == "done"
    for side, partitions in ((scene.source, 2), (scene.target, 2)):
        side.delete(scene.topic)
        side.create(scene.topic, partitions)
    fill(scene, 2, 40)
    reset_topic(scene.bare_run("reset"), scene.topic)
    dies_at(scene, monkeypatch, "P1:3")
    assert scene.run().outcome == "done"
    assert judged(scene, 2, 2) == counted(scene) == (0, 20)
    audited = audit(scene.bare_run()).partitions[:2]  # the third one has no topic any more
    assert [one.outcome for one in audited] == ["clean", "clean"]
    assert sum(one.duplicates for one in audited) == 20


@pytest.mark.parametrize("partitioning", ["by_key", pytest.param("keep", marks=pytest.mark.slow)])
def test_what_an_earlier_generation_left_is_not_extra(
    scene: Scenario, partitioning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the file was changed for the reset alone. What others write behind the new generation is extra as ever."""
    scene.settings |= {"delivery": "at_least_once", "partitioning": partitioning, "copy": {"chunk_records": 20}}
    for side in (scene.source, scene.target):
        side.create(scene.topic, 2)
    fill(scene, 2, 40)
    dies_at(scene, monkeypatch, "P1:3")
    assert scene.run().outcome == "done"
    scene.settings["on_existing_target"] = "append"
    reset_topic(scene.bare_run("reset"), scene.topic)
    assert scene.run().outcome == "done"
    assert judged(scene, 2, 2) == (0, 80 + 20)
    for existing in ("append", "refuse"):
        scene.settings["on_existing_target"] = existing
        assert_audited(scene, 0, 0)
    scene.target.produce(scene.topic, [Rec(b"foreign", b"nobody's")], 1)
    found = audit(scene.bare_run())
    assert [one.counts[Kind.EXTRA] for one in found.partitions] == [0, 1], found.text()


def dies_at_second_count(scene: Scenario, patch: pytest.MonkeyPatch) -> None:
    """The entry of one source partition says what was counted, that of the next one does not."""
    produce, counts = AcknowledgedProducer._produce, list[bytes]()

    def watched(producer: AcknowledgedProducer, topic: str, partition: int, key: bytes, value: Any) -> None:
        counts.extend([key] if b'"explained":' in (value or b"") else [])
        if len(counts) == 2:
            producer.flush()
            raise Killed
        produce(producer, topic, partition, key, value)

    with patch.context() as inner:
        inner.setattr(AcknowledgedProducer, "_produce", watched)
        with pytest.raises(Killed):
            scene.run(InProcess(at_once=AT_ONCE))


def test_a_backfill_and_a_record_of_somebody_else(scene: Scenario) -> None:
    scene.settings |= {"delivery": "leader_ack", "partitioning": f"{__name__}:by_length"}
    scene.settings |= {"copy": {"chunk_records": 20}, "target_topics": {"partitions": 2}}
    scene.source.create(scene.topic, 3)
    fill(scene, 3, 40)
    assert scene.run(InProcess(at_once=3)).outcome == "done"
    assert judged(scene, 3, 2) == counted(scene) == (0, 0)
    other = f"{scene.topic}.again"
    request = parse(scene.replication(), topics=[scene.topic], from_=20, until=40, target_topic=other)
    report = backfilling.run(scene.replication(), scene.connections, scene.store, InProcess, request)
    assert report.outcome == "done", report.table()
    assert sum(map(len, logs(scene.target.bootstrap, other, 2))) == 60
    assert_audited(scene, 0, 0)

    scene.target.produce(scene.topic, [Rec(b"foreign", b"nobody's")], 1)
    fill(scene, 3, 10, first=40)
    report = scene.run()
    assert report.outcome == "failed" and "1 records that no source has, the first at offset" in report.table()
    assert [scene.watermark(number) for number in range(3)] == [50] * 3
    found = audit(scene.bare_run(), AuditRequest(topic=scene.topic))
    assert sum(one.counts[Kind.EXTRA] for one in found.partitions) == 1, found.text()


def by_length(record: Any, partitions: int) -> int:
    return len(record.value or b"") % partitions


@pytest.mark.slow
@pytest.mark.parametrize("partitioning", ["by_key", "round_robin"])
@pytest.mark.parametrize(("sources", "targets"), [(12, 3), (3, 12)])
def test_what_killed_processes_left_is_counted(scene: Scenario, sources: int, targets: int, partitioning: str) -> None:
    """Four partitions at a time: between their records and their receipts, between these and the positions."""
    scene.settings |= {"delivery": "at_least_once", "partitioning": partitioning}
    scene.settings |= {"copy": {"chunk_records": 20}, "target_topics": {"partitions": targets}}
    scene.source.create(scene.topic, sources)
    fill(scene, sources, 60)
    for point in ("P1:3", "P2:4", "P3:2"):
        assert end_of(run_process(scene, point, AT_ONCE)) == -signal.SIGKILL
    report = scene.run(InProcess(at_once=AT_ONCE))
    assert report.outcome == "done", report.table()
    lost, doubled = judged(scene, sources, targets)
    assert (lost, doubled) == counted(scene) and not lost and doubled
    assert [scene.watermark(number) for number in range(sources)] == [60] * sources
    assert_audited(scene, 0, doubled)
    scene.idle_run()


@pytest.mark.slow
def test_records_that_were_set_aside_are_copied_after_all(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first retry dies before it is written down: its record is there, and counts as a duplicate."""
    scene.source.create(scene.topic, 2, {"max.message.bytes": "2000000"})
    scene.target.create(scene.topic, 3, {"max.message.bytes": "100000"})
    scene.settings |= {"delivery": "leader_ack", "partitioning": "by_key", "failures": {"policy": "quarantine"}}
    fill(scene, 2, 50)
    scene.source.produce(scene.topic, [Rec(b"large", os.urandom(150_000), (), BASE) for _ in range(2)], 1)
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert judged(scene, 2, 3) == (2, 0) and counted(scene) == (0, 0)
    scene.target.set(scene.topic, max_message_bytes="1000000")

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(AcknowledgedSession, "decide", die)
        with pytest.raises(Killed):
            retry(scene, until=51)
    retry(scene, until=51)
    fill(scene, 2, 20, first=50)
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert judged(scene, 2, 3) == (1, 1) and counted(scene) == (0, 1)
    retry(scene)
    assert judged(scene, 2, 3) == (0, 1)
    scene.idle_run()
    assert_audited(scene, 0, 1)


def retry(scene: Scenario, **asked: Any) -> None:
    run = open_run(scene.replication(), scene.connections, scene.store, f"retry-{os.urandom(3).hex()}")
    handle(run, Action.RETRY, Asked(**(asked or {"everything": True})), Decision(by="ann", reason="why"))
