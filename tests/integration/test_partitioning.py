"""Records are spread over another number of target partitions: all of them arrive, once, in order, and are verified."""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import murmur2

from kafka_replication import transforms
from kafka_replication.model.errors import BadInput, Refused
from kafka_replication.planning.backfill_request import parse
from kafka_replication.planning.plan import State
from kafka_replication.reporting.audit import AuditReport
from kafka_replication.reporting.progress import Progress
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import audit as auditing
from kafka_replication.runs import audit_choosing, checking, steps
from kafka_replication.runs.audit_choosing import ALL
from kafka_replication.runs.reporting import standing
from kafka_replication.runs.reset import reset_topic
from kafka_replication.runs.run import Request, open_run
from kafka_replication.spark.jobs import Job, JobEnd
from kafka_replication.spark.launcher import Deliver
from kafka_replication.verification.auditing import Size
from kafka_replication.verification.matching import Kind
from tests.support import audits as audit
from tests.support import whole_runs
from tests.support.checker import Record, read
from tests.support.children import end_of, run_process
from tests.support.jobs import InProcess
from tests.support.raw_produce import RawRecord, produce_batch
from tests.support.scenario import Rec, Scenario, numbered, only

BASE = 1_700_000_000_000


def fill(scene: Scenario, partitions: int, count: int, keys: int = 50, first: int = 0) -> None:
    """So many records in each source partition. A key is in one source partition only, as Java's producer does it."""
    for partition in range(partitions):
        records = [Rec(b"p%d-%d" % (partition, n % keys), b"%d" % n, (), BASE + n) for n in range(first, first + count)]
        scene.source.produce(scene.topic, records, partition)


def on(bootstrap: str, topic: str, partitions: int) -> list[list[Record]]:
    return [[record for _, record in read(bootstrap, topic, number)] for number in range(partitions)]


def assert_spread(scene: Scenario, sources: int, targets: int) -> list[list[Record]]:
    """Each record is there exactly once, and in each target partition those of a source partition are in their order."""
    source, target = on(scene.source.bootstrap, scene.topic, sources), on(scene.target.bootstrap, scene.topic, targets)
    assert Counter(record for log in target for record in log) == Counter(record for log in source for record in log)
    place = {record: (number, n) for number, log in enumerate(source) for n, record in enumerate(log)}
    for log in target:
        for number in range(sources):
            order = [place[record][1] for record in log if place[record][0] == number]
            assert order == sorted(order)
    return target


def assert_clean_audit(scene: Scenario) -> AuditReport:
    found = audit.audit(scene.bare_run())
    assert found.outcome == "clean", found.text()
    return found


def assert_verified(scene: Scenario, sources: int, until: int) -> None:
    view = scene.bare_run().view()
    for number in range(sources):
        assert str(view.of(scene.key(number), 1).verified.coverage) == f"[0, {until})"


@pytest.mark.parametrize(("sources", "targets"), [(6, 3), pytest.param(3, 12, marks=pytest.mark.slow)])
def test_a_killed_run_loses_doubles_and_reorders_nothing(scene: Scenario, sources: int, targets: int) -> None:
    """Between a chunk's records and its commit, while it is committed, and before it is reported. Its open transaction
    hides the records of other source partitions: the next run ends it.
    """
    scene.settings |= {
        "partitioning": "by_key",
        "copy": {"chunk_records": 20, "transaction_timeout": 600},
        "target_topics": {"partitions": targets},
    }
    scene.source.create(scene.topic, sources)
    fill(scene, sources, 60)
    for point in ("P1:2", "P2:3", "P3:3"):
        assert end_of(run_process(scene, point)) == -signal.SIGKILL
    assert scene.run().outcome == "done"
    assert scene.target.partitions(scene.topic) == targets
    for number, log in enumerate(assert_spread(scene, sources, targets)):
        assert all(murmur2(record.key or b"", targets) == number for record in log)
    assert_verified(scene, sources, 60)
    assert [scene.watermark(number) for number in range(sources)] == [60] * sources
    scene.idle_run()
    assert_clean_audit(scene)


@pytest.mark.parametrize(
    "config",
    [
        {"partitioning": "round_robin"},
        {"partitioning": f"{__name__}:by_length"},
    ],
    ids=["round_robin", "function"],
)
def test_every_way_to_spread_is_copied_verified_and_audited(scene: Scenario, config: dict[str, Any]) -> None:
    scene.settings |= config | {"copy": {"chunk_records": 50}, "target_topics": {"partitions": 2}}
    scene.source.create(scene.topic, 3)
    fill(scene, 3, 120)
    scene.source.produce(scene.topic, [Rec(None, b"no key %d" % n, (), BASE) for n in range(40)], 2)
    assert scene.run().outcome == "done"
    zero, one = assert_spread(scene, 3, 2)
    match config["partitioning"]:
        case "round_robin":
            assert abs(len(zero) - len(one)) <= 3 * 60
        case _:
            assert all(len(record.value or b"") % 2 == 0 for record in zero) and len(one) > 100
    assert_clean_audit(scene)


def by_length(record: transforms.Record, partitions: int) -> int:
    return len(record.value or b"") % partitions


def test_a_function_that_fails_names_itself_and_the_record(scene: Scenario) -> None:
    scene.settings |= {"partitioning": f"{__name__}:fails", "target_topics": {"partitions": 2}}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [Rec(b"k", b"%d" % n) for n in range(10)])
    report = scene.run()
    error = only(report).error or ""
    assert f"{__name__}:fails gives no partition from 0 to 1 for the record at offset 7: it returned 2" in error, error
    assert scene.watermark() == 7
    missing = f"{__name__}:missing"
    with pytest.raises(BadInput, match=f"the partitioning {missing} cannot be imported"):
        scene.run(partitioning=missing)
    with pytest.raises(BadInput, match="cannot be imported"):
        checking.check(open_run(scene.replication(partitioning=missing), scene.connections, scene.store, "check"))


def fails(record: transforms.Record, partitions: int) -> int:
    return 2 if record.value == b"7" else 0


def test_two_replications_and_a_third_writer_share_a_target_topic(scene: Scenario) -> None:
    """Verification compares exactly ours, and the audit of each is clean; a record of ours that is gone is found."""
    other = Scenario(scene.source, scene.target, scene.folder)
    other.topic = f"all.{scene.topic}"
    share = {"on_existing_target": "share", "copy": {"chunk_records": 30}}
    scene.settings |= share | {"topics": {"include": [scene.topic], "rename": "all.{topic}"}}
    other.settings |= share
    scene.target.create(other.topic, 2)
    for number in range(2):
        scene.source.create(scene.topic if number else other.topic, 2)
    for first in range(0, 120, 60):
        for at in (scene, other):
            fill(at, 2, 60, first=first)
            scene.target.produce(other.topic, [Rec(b"foreign", b"%d" % first)], first % 2)
            assert at.run().outcome == "done"
            scene.target.transaction(other.topic, [Rec(b"foreign too")], 1)
    for at in (scene, other):
        found = assert_clean_audit(at)
        assert sum(partition.by_content for partition in found.partitions) == 240
        at.idle_run()
    assert len(read(scene.target.bootstrap, other.topic, 0)) + len(read(scene.target.bootstrap, other.topic, 1)) > 484


class Intruder(InProcess):
    """Somebody else writes to the target before a job is worked on, and after the target was looked at."""

    def __init__(self, scene: Scenario, partition: int) -> None:
        super().__init__()
        self._scene, self._partition = scene, partition

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        self._scene.target.produce(self._scene.topic, [Rec(b"foreign", b"between")], self._partition)
        return super().submit(job, deliver)


def test_a_foreign_record_behind_ours_is_refused_and_one_between_ours_is_found_by_an_audit(scene: Scenario) -> None:
    scene.settings |= {"partitioning": "by_key", "target_topics": {"partitions": 2}}
    scene.source.create(scene.topic, 3)
    for first in (0, 50):
        fill(scene, 3, 50, first=first)
        assert scene.run(Intruder(scene, 1) if first else None).outcome == "done"
    found = audit.audit(scene.bare_run())
    assert found.outcome == "differs" and "extra target partition 1" in found.text(), found.text()
    assert sum(partition.counts[Kind.EXTRA] for partition in found.partitions) == 1
    assert sum(map(sum, (list(partition.counts.values()) for partition in found.partitions))) == 1

    scene.target.produce(scene.topic, [Rec(b"foreign", b"behind")], 0)
    assert {row.plan.state for row in standing(scene.bare_run())} == {State.FOREIGN}
    assert scene.run().outcome == "failed"


@pytest.mark.parametrize("launched", [pytest.param(False, marks=pytest.mark.slow), True])
def test_an_audit_reads_a_target_partition_in_parts(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch, *, launched: bool
) -> None:
    """Three source partitions and somebody else write to it. Its progress is that of the parts."""
    monkeypatch.setattr(audit_choosing, "PART_OFFSETS", 40)
    scene.settings |= {"partitioning": "by_key", "copy": {"chunk_records": 20}, "target_topics": {"partitions": 1}}
    scene.source.create(scene.topic, 3)
    for first in (0, 50):
        fill(scene, 3, 50, first=first)
        assert scene.run(Intruder(scene, 0) if first else None).outcome == "done"
    seen: list[Progress] = []
    run = replace(scene.bare_run("audit"), show=seen.append)
    found = auditing.audit(run, ALL, InProcess() if launched else None, least=Size())
    reading = [one for one in seen if one.ranges == 1]
    assert [one.offsets_done for one in reading] == sorted({one.offsets_done for one in reading}) and len(reading) > 5
    assert [one.ranges_done for one in reading] == [0] * (len(reading) - 1) + [1]
    assert (found.outcome, found.text().count("extra target partition 0")) == ("differs", 1), found.text()
    counts = [(kind, count) for one in found.partitions for kind, count in one.counts.items() if count]
    assert counts == [(Kind.EXTRA, 1)]


@pytest.mark.parametrize("how", [{}, {"partitioning": "by_key", "target_topics": {"partitions": 2}}])
def test_a_foreign_record_that_no_client_of_ours_decodes_is_found(scene: Scenario, how: dict[str, Any]) -> None:
    """Its header name is not UTF-8. The audit goes on, also in the other partition."""
    scene.settings |= how
    scene.source.create(scene.topic, 2)
    fill(scene, 2, 50)
    assert scene.run().outcome == "done"
    produce_batch(
        scene.target.bootstrap, scene.topic, 1, [RawRecord(b"x", b"v", ((b"a\xff", b"1"),), 1_700_000_000_000)]
    )
    found = auditing.audit(scene.bare_run())
    assert found.outcome == "differs", found.text()
    assert [one.counts[Kind.EXTRA] for one in found.partitions] == [0, 1]
    assert not any(one.errors for one in found.partitions)


def test_copies_that_are_gone(scene: Scenario) -> None:
    """One target partition loses a part of a chunk: that is told. All of it is gone: it is copied again."""
    scene.settings |= {"partitioning": "by_key", "target_topics": {"partitions": 2}, "copy": {"chunk_records": 50}}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(200))
    assert scene.run().outcome == "done"
    first = scene.bare_run().clusters.ledger.receipts({scene.key(): None}).of(scene.key(), 1)[0]
    ends = {part.partition: part.until for part in first.parts}
    scene.target.delete_before(scene.topic, 0, ends[0])
    line = standing(scene.bare_run())[0].plan
    assert (line.state, str(line.removed)) == (State.REMOVED, "[0, 50)")
    with pytest.raises(Refused, match="they lie in several partitions there"):
        backfill(scene, 0, 50)
    scene.target.delete_before(scene.topic, 1, ends[1])
    report = backfill(scene, 0, 50)
    assert report.outcome == "done", report.table()
    assert only(report).copied == 50
    source = on(scene.source.bootstrap, scene.topic, 1)
    target = on(scene.target.bootstrap, scene.topic, 2)
    assert Counter(record for log in target for record in log) == Counter(source[0])
    assert_clean_audit(scene)


def backfill(scene: Scenario, from_: int, until: int, target: str | None = None) -> RunReport:
    request = parse(scene.replication(), topics=[scene.topic], from_=from_, until=until, target_topic=target)
    return whole_runs.backfill(scene.replication(), scene.connections, scene.store, InProcess(), request)


@pytest.mark.slow  # all that spread is above, and `test_at_once.py` has such a backfill
def test_a_backfill_into_another_topic_spreads_too(scene: Scenario) -> None:
    scene.settings |= {"partitioning": "round_robin", "target_topics": {"partitions": 3}}
    scene.source.create(scene.topic, 2)
    fill(scene, 2, 300)
    assert scene.run().outcome == "done"
    other = f"{scene.topic}.again"
    report = backfill(scene, 100, 300, other)
    assert report.outcome == "done", report.table()
    assert sum(map(len, on(scene.target.bootstrap, other, 3))) == 400
    fill(scene, 2, 30, first=1000)
    assert scene.run().outcome == "done"
    assert_spread(scene, 2, 3)
    scene.idle_run()
    assert_clean_audit(scene)


@pytest.mark.slow
def test_what_changes_later(scene: Scenario) -> None:
    """Partitions that are added to the target, a reset, and a source that grows."""
    scene.settings |= {"partitioning": "by_key", "target_topics": {"partitions": 2}}
    scene.source.create(scene.topic, 2)
    fill(scene, 2, 40)
    assert scene.run().outcome == "done"
    scene.target.grow(scene.topic, 3)
    fill(scene, 2, 40, first=40)
    report = scene.run()
    assert report.outcome == "failed" and "has 3 partitions now and had 2" in (only(report).error or "")
    report = scene.run(target_topics={"partitions": 3})
    assert report.outcome == "done" and "records of one key may lie in two partitions" in "".join(report.notes)
    scene.settings |= {"target_topics": {"partitions": 3}}
    scene.source.grow(scene.topic, 3)
    fill(scene, 3, 40, first=80)
    assert scene.run().outcome == "done"
    assert_spread(scene, 3, 3)
    assert_clean_audit(scene)
    scene.target.delete(scene.topic)
    reset_topic(scene.bare_run("reset"), scene.topic)
    assert scene.run().outcome == "done"
    assert_spread(scene, 3, 3)
    assert_clean_audit(scene)


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param("keep", "by_key", marks=pytest.mark.slow), ("by_key", "keep")]
)
def test_a_run_that_was_planned_before_the_partitioning_changed(scene: Scenario, before: str, after: str) -> None:
    """No step of it copies in the new way: not one that is tried again, nor one whose plan says nothing of the file."""
    scene.settings["partitioning"] = before
    scene.source.create(scene.topic, 2)
    fill(scene, 2, 20)
    assert scene.run().outcome == "done"
    fill(scene, 2, 20, first=20)
    stored = steps.prepare(scene.bare_run("cleared"), Request())
    there = [read(scene.target.bootstrap, scene.topic, number) for number in (0, 1)]

    scene.settings["partitioning"] = after
    changed = scene.bare_run("cleared")
    with pytest.raises(Refused, match="partitioning") as refused:
        steps.replicate(changed, stored, InProcess())
    assert "clear the task plan" in refused.value.remedy and not refused.value.retriable
    older = steps.replicate(changed, replace(stored, settings={}), InProcess())
    assert [f"with partitioning {before}" in (result.error or "") for result in older.copied] == [True, True]
    anew = steps.prepare(changed, Request())
    assert {planned.state for planned in anew.partitions} == {State.REPARTITIONED}
    assert [read(scene.target.bootstrap, scene.topic, number) for number in (0, 1)] == there

    scene.settings["partitioning"] = before
    again = steps.prepare(scene.bare_run("cleared"), Request())
    scene.settings |= {"copy": {"chunk_records": 2}}  # no plan depends on it
    assert not steps.replicate(scene.bare_run("cleared"), again, InProcess()).not_copied
    assert_spread(scene, 2, 2)
