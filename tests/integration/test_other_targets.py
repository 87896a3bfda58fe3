"""A target of another kind goes the whole way: plan, copy, die, heal, verify, audit, backfill, retry. Its source is Kafka."""

from __future__ import annotations

import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_replication.model.errors import Unreachable
from kafka_replication.planning.backfill_request import parse
from kafka_replication.reporting.audit import AuditReport
from kafka_replication.runs import backfill as backfilling
from kafka_replication.runs.failed_records import Selection, failed_records
from kafka_replication.runs.previewing import preview
from kafka_replication.runs.repair import rebuild_store
from kafka_replication.runs.reporting import standing
from kafka_replication.runs.reset import reset_topic
from kafka_replication.runs.retry_discard import Decision, discard, retry
from kafka_replication.targets.journal import MOST_IN_TAIL
from stack.opensearch_server import OpenSearchServer
from tests.folder_target.ground import FolderGround
from tests.support import whole_runs
from tests.support.actions import approve, replace_store, table
from tests.support.audits import audit
from tests.support.checker import read
from tests.support.children import copy_process, end_of
from tests.support.hbase import HBaseGround
from tests.support.jobs import InProcess, after_copy
from tests.support.opensearch import OpenSearchGround
from tests.support.scenario import ALL, Rec, Scenario, numbered, only

Ground = FolderGround | OpenSearchGround | HBaseGround
# What readers may see before it is committed is not the same everywhere, all else is.
TARGETS = {
    "folder": {"connection": "target", "type": "tests.folder_target.target:FolderTarget"},
    "opensearch": {"connection": "target", "type": "opensearch", "documents": {"value": "base64"}},
    "hbase": {"connection": "target", "type": "hbase"},
}


def without(*servers: str) -> pytest.MarkDecorator:
    """The flow is the same code for all. With these servers it is slow; what they have to do in it is a case of their suites in
    `tests/contract`, or of another file, which each use names.
    """
    kinds = [pytest.param(kind, marks=pytest.mark.slow) if kind in servers else kind for kind in TARGETS]
    return pytest.mark.parametrize("ground", kinds, indirect=True)


# Where nobody listens. `test_opensearch.py` and `test_hbase.py` kill the servers.
NOWHERE = {
    FolderGround: {"folder": "/nowhere/target"},
    OpenSearchGround: {"url": "http://127.0.0.1:1"},
    HBaseGround: {"url": "http://127.0.0.1:1"},
}


@pytest.fixture(params=TARGETS)
def ground(request: pytest.FixtureRequest, scene: Scenario, tmp_path: Path) -> Ground:
    """The target of the scene, which is no Kafka cluster."""
    ground: Ground
    match request.param:
        case "opensearch":
            ground = OpenSearchGround.of(request.getfixturevalue("opensearch"))
        case "hbase":
            ground = HBaseGround(request.getfixturevalue("hbase"))
        case _:
            ground = FolderGround(tmp_path / "target")
    scene.client = dict(ground.connection)
    scene.settings["target"] = TARGETS[request.param]
    return ground


def values(ground: Ground, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record[3] for _, record in ground.visible(topic, partition)]


def assert_copied(scene: Scenario, ground: Ground, partition: int = 0, topic: str = "") -> None:
    """Every record is there, unchanged, in order, once, and nothing else."""
    there = [record for _, record in read(scene.source.bootstrap, scene.topic, partition)]
    found = [record for _, record in ground.visible(topic or scene.topic, partition)]
    assert [(r.timestamp, r.key, r.value, r.headers) for r in there] == [
        (timestamp, key, value, tuple(headers or ())) for _, timestamp, key, value, headers in found
    ]


def clean(report: AuditReport) -> bool:
    return all(partition.outcome == "clean" for partition in report.partitions)


def assert_clean(scene: Scenario) -> None:
    report = audit(scene.bare_run())
    assert clean(report), report.text()


def ready(scene: Scenario, count: int = 100, partitions: int = 1) -> None:
    scene.source.create(scene.topic, partitions)
    for partition in range(partitions):
        scene.source.produce(scene.topic, numbered(count), partition)


@without("opensearch")  # `test_opensearch.py`, and `test_spark_elsewhere.py` with real Spark
def test_runs_copy_and_verify_and_an_audit_finds_both_sides_equal(scene: Scenario, ground: Ground) -> None:
    ready(scene, partitions=2)
    scene.source.transaction(scene.topic, numbered(5, 100), abort=True)  # offsets without records
    scene.source.transaction(scene.topic, [Rec(None, None, (("a", b"1"), ("a", None))), Rec(b"", b"")])
    plan, findings = preview(scene.bare_run(), ALL)
    assert plan.to_copy and not [one for one in findings if one.severity == "error"], findings
    assert not ground.exists(scene.topic), "a preview creates nothing"
    scene.settings["copy"] = {"chunk_records": 30}
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert [line.digest_ok for line in report.ranges] == [True, True]
    promise = scene.bare_run().clusters.promise
    receipts = scene.bare_run().clusters.ledger.receipts({scene.key(): None}).of(scene.key(), 1)
    assert {receipt.promise for receipt in receipts} == {promise} == {report.promise}
    for partition in (0, 1):
        assert_copied(scene, ground, partition)
    scene.idle_run()
    scene.source.produce(scene.topic, numbered(50, 200))
    assert scene.run().outcome == "done"
    assert_copied(scene, ground)
    assert_clean(scene)
    assert {row.state for row in standing(scene.bare_run())} == {"in sync"}


# The sinks' own suites and the tests of Kafka's copier have the other moments.
@pytest.mark.parametrize(
    ("ground", "failpoint"),
    [
        ("folder", "P3:2"),
        pytest.param("opensearch", "P1:2", marks=pytest.mark.slow),  # rows of the faults
        pytest.param("hbase", "P3:2", marks=pytest.mark.slow),  # one dies there in `test_latest.py`
    ],
    indirect=["ground"],
)
def test_a_copier_that_dies_is_healed_by_the_next_run(scene: Scenario, ground: Ground, failpoint: str) -> None:
    scene.settings["copy"] = {"chunk_records": 20}
    ready(scene)
    assert end_of(copy_process(scene, scene.copy_job(), failpoint)) == -signal.SIGKILL
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert_copied(scene, ground)
    assert scene.watermark() == 100


# `test_opensearch.py` changes a document, `test_latest.py` a row.
@pytest.mark.parametrize("ground", ["folder", pytest.param("hbase", marks=pytest.mark.slow)], indirect=True)
def test_what_was_changed_before_it_was_read_back_is_named(scene: Scenario, ground: Ground) -> None:
    ready(scene)

    def change() -> None:
        offset, record = ground.visible(scene.topic)[7]
        ground.overwrite(scene.topic, (offset, *record[1:3], b"another", None))

    report = scene.run(after_copy(change))
    assert report.outcome == "failed" and "differ" in (only(report).error or ""), report.table()
    assert scene.watermark() in (None, 0)
    assert not clean(audit(scene.bare_run()))


@without("opensearch", "hbase")  # `a_foreign_record_is_noticed`
def test_a_record_of_somebody_else_is_refused(scene: Scenario, ground: Ground) -> None:
    ready(scene)
    assert scene.run().outcome == "done"
    ground.write(scene.topic, (0, 1, b"k", b"foreign", None))
    scene.source.produce(scene.topic, numbered(10, 100))
    report = scene.run()
    assert report.outcome == "failed" and len(values(ground, scene.topic)) == 101, report.table()
    assert not clean(audit(scene.bare_run()))


@without("opensearch")  # `a_foreign_record_is_noticed`
def test_a_target_that_has_records_already_is_refused(scene: Scenario, ground: Ground) -> None:
    ready(scene)
    ground.create(scene.topic)
    ground.write(scene.topic, (0, 1, b"k", b"foreign", None))
    report = scene.run()
    assert report.outcome == "failed" and "already holds records" in (only(report).error or ""), report.table()
    assert values(ground, scene.topic) == [b"foreign"]


@without("opensearch", "hbase")  # `test_latest.py` has a backfill
def test_a_backfill_copies_a_range_to_another_topic(scene: Scenario, ground: Ground) -> None:
    ready(scene)
    assert scene.run().outcome == "done"
    again = f"{scene.topic}-again"
    request = parse(scene.replication(), topics=[scene.topic], from_=10, until=60, target_topic=again)
    shown = backfilling.preview(scene.bare_run(), request)
    assert shown.plan.to_copy and not ground.exists(again)
    launcher = InProcess()
    report = whole_runs.backfill(scene.replication(), scene.connections, scene.store, launcher, request)
    assert report.outcome == "done", report.table()
    assert values(ground, again) == values(ground, scene.topic)[10:60]
    assert_clean(scene)


# `test_latest.py` sets records aside and retries them; `a_decision_and_its_records_are_there_together`.
@without("opensearch", "hbase")
def test_records_that_the_target_refuses_are_set_aside_retried_and_discarded(scene: Scenario, ground: Ground) -> None:
    scene.settings["failures"] = {"policy": "quarantine", "limit": 10}
    ready(scene, 20)
    scene.source.produce(scene.topic, [Rec(b"large", b"x" * 50_000), Rec(b"larger", b"y" * 90_000), *numbered(5, 30)])
    ground.create(scene.topic)
    ground.limit(scene.topic, 20_000)
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert len(values(ground, scene.topic)) == 25
    rows = failed_records(scene.bare_run(), scene.bare_run().view(), Selection())
    assert [row.record.offset for row in rows] == [20, 21]
    assert_clean(scene)
    outcomes = retry(scene.bare_run(), rows, Decision(by="me"))
    assert {outcome.row.record.offset: outcome.done for outcome in outcomes} == {20: False, 21: False}
    ground.unlimit(scene.topic)
    outcomes = retry(scene.bare_run(), rows[:1], Decision(by="me"))
    assert {outcome.row.record.offset: outcome.done for outcome in outcomes} == {20: True}
    assert [done.done for done in discard(scene.bare_run(), rows[1:], Decision(by="me"))] == [True]
    assert len(values(ground, scene.topic)) == 26
    assert failed_records(scene.bare_run(), scene.bare_run().view(), Selection()) == []
    assert_clean(scene)
    scene.idle_run()


@without("opensearch", "hbase")  # `a_target_that_was_re_created_is_refused`
def test_a_topic_that_was_created_again_is_reset_and_copied_again(scene: Scenario, ground: Ground) -> None:
    ready(scene)
    assert scene.run().outcome == "done"
    ground.delete(scene.topic)
    assert scene.run().outcome == "failed"
    reset_topic(scene.bare_run("reset"), scene.topic)
    assert scene.run().outcome == "done"
    assert_copied(scene, ground)
    assert scene.position().generation == 2


@without("opensearch", "hbase")  # `a_session_of_entries_moves_the_position_and_crosses_a_gap`
def test_a_gap_is_crossed_by_approval_and_an_emptied_store_is_restored_behind_it(
    scene: Scenario, ground: Ground
) -> None:
    ready(scene, 50)
    assert scene.run().outcome == "done"
    scene.source.produce(scene.topic, numbered(30, 50))
    scene.source.delete_before(scene.topic, 0, 62)
    report = scene.run()
    assert report.outcome == "failed" and "approve-gap" in only(report).remedy, report.table()
    gap, new = approve(scene, 50, 62)
    assert new and gap.kind == "retention" and scene.watermark() == 62
    report = scene.run()
    assert report.outcome == "done" and only(report).copied == 18, report.table()
    assert values(ground, scene.topic) == [each.value for each in (*numbered(50), *numbered(18, 62))]
    before = table(scene)
    replace_store(scene)
    assert table(scene) == {}
    rebuild_store(scene.bare_run("rebuild"))
    assert table(scene) == before
    assert_clean(scene)
    scene.idle_run()


@pytest.mark.slow
def test_old_receipts_of_verified_ranges_are_deleted_by_a_run(scene: Scenario, opensearch: OpenSearchServer) -> None:
    ground = OpenSearchGround.of(opensearch)
    scene.client, scene.settings["target"] = dict(ground.connection), TARGETS["opensearch"]
    scene.settings["copy"] = {"chunk_records": 10}
    ready(scene)
    assert scene.run().outcome == "done"
    ledger, key = scene.bare_run().clusters.ledger, scene.key()
    written = ledger.receipts({key: None}).of(key, 1)
    assert len(written) == 10
    with closing(scene.bare_run().clusters.target.writer("a test", "a test")) as writer:
        writer.fence()
        writer.begin()
        for entry in [replace(old, time="2020-01-01T00:00:00.000Z") for old in written]:
            ledger.write(writer, key, entry)
        for _ in range(MOST_IN_TAIL):  # so that the head keeps none of the receipts
            ledger.write(writer, key, scene.position())
        writer.commit()
    ground.journal(scene.name).change(lambda head: replace(head, expired=""))
    scene.source.produce(scene.topic, numbered(1, 100))
    assert scene.run().outcome == "done"
    left = ledger.receipts({key: None})
    assert [receipt.range.from_ for receipt in left.of(key, 1)] == [100] and left.incomplete(key)
    scene.idle_run()
    [audited] = audit(scene.bare_run()).partitions
    assert audited.outcome != "differs" and "expired" in str(audited)


@without("hbase")  # `test_hbase.py` kills both of its processes
def test_a_target_that_is_away_is_named(scene: Scenario, ground: Ground) -> None:
    ready(scene)
    assert scene.run().outcome == "done"
    there, scene.client = scene.client, dict(NOWHERE[type(ground)])
    with pytest.raises(Unreachable, match="does not answer"):
        scene.run()
    scene.client = there
    scene.idle_run()
