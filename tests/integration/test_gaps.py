"""Offsets that the source no longer has are crossed by approval only: exactly those, once, and shown ever after."""

from __future__ import annotations

import json

import pytest

from kafka_replication.ledger.account import Change
from kafka_replication.ledger.writing import apply
from kafka_replication.model.errors import Fenced, GapFound, Refused
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.planning import live
from kafka_replication.reporting import status
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import steps
from kafka_replication.runs.run import Request
from tests.support.actions import approve
from tests.support.checker import read
from tests.support.command_line import command
from tests.support.jobs import InProcess, after_copy, copy_once
from tests.support.scenario import Scenario, numbered, only


def overrun(scene: Scenario, copied: int = 50, lost: int = 12) -> OffsetRange:
    """``copied`` records on both sides, then 30 more of which retention took the first ``lost`` before they were copied."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(copied))
    assert scene.run().outcome == "done"
    scene.source.produce(scene.topic, numbered(30, copied))
    scene.source.delete_before(scene.topic, 0, copied + lost)
    return OffsetRange(copied, copied + lost)


def failed(report: RunReport, partition: int = 0) -> str:
    assert report.outcome == "failed", report.table()
    return only(report, partition).remedy


def test_an_approved_gap_is_crossed(scene: Scenario) -> None:
    overrun(scene)
    assert f"approve-gap {scene.name}.yaml --topic {scene.topic} --partition 0 --from 50 --until 62" in failed(
        scene.run()
    )
    gap, new = approve(scene, 50, 62)
    assert new and (gap.kind, gap.range, gap.approved_by, gap.reason) == (
        "retention",
        OffsetRange(50, 62),
        "ann",
        "retention was too short",
    )
    assert scene.watermark() == 62
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert (only(report).range.from_, only(report).copied, only(report).lost) == (62, 18, 0)
    assert scene.watermark() == 80
    wanted = [each.key for each in (*numbered(50), *numbered(18, 62))]
    assert [record.key for _, record in read(scene.target.bootstrap, scene.topic, 0)] == wanted
    assert "[50, 62): 12 offsets" in report.table() and report.gaps[0].approved_by == "ann"
    scene.idle_run()


def test_status_shows_it_ever_after_and_an_emptied_store_is_rebuilt_across_it(scene: Scenario) -> None:
    overrun(scene)
    approve(scene, 50, 62)
    scene.run()
    run = scene.bare_run()
    view = run.view()
    snapshot = run.snapshot(view)
    rows = status.status(live.plan(run.replication, snapshot, view, {}), snapshot, view)
    assert (rows[0].lost, rows[0].gaps[0].until) == (12, 62)
    assert "given up by ann" in status.status_table(rows)
    assert view.of(scene.key(), 1).verified.coverage.missing_from(OffsetRange(0, 80)) == (OffsetRange(50, 62),), (
        "nothing was read back of the gap"
    )
    (scene.folder / "store.db").unlink()
    scene.store = type(scene)(scene.source, scene.target, scene.folder).store
    assert scene.watermark() is None
    assert steps.advance(scene.bare_run(), [scene.key()]) == {scene.key(): 80}


def test_other_offsets_are_refused_naming_the_right_ones(scene: Scenario) -> None:
    overrun(scene)
    for from_, until in ((50, 61), (50, 63), (51, 62), (0, 62), (62, 80)):
        with pytest.raises(GapFound) as refused:
            approve(scene, from_, until)
        assert "exactly [50, 62) are lost" in refused.value.what and "--from 50 --until 62" in refused.value.remedy
    assert scene.position().next_offset == 50 and not scene.bare_run().view().gaps


def test_approving_twice_changes_nothing(scene: Scenario) -> None:
    overrun(scene)
    first, new = approve(scene, 50, 62)
    again, anew = approve(scene, 50, 62)
    assert (first, new, anew) == (again, True, False)
    scene.run()
    assert approve(scene, 50, 62) == (first, False)
    assert (scene.position().next_offset, scene.watermark()) == (80, 80)


def test_an_approval_that_died_before_the_store_heard_of_it(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    overrun(scene)
    monkeypatch.setattr(steps, "advance", dies)
    with pytest.raises(KeyboardInterrupt):
        approve(scene, 50, 62)
    monkeypatch.undo()
    assert (scene.position().next_offset, scene.watermark()) == (62, 50)
    assert approve(scene, 50, 62)[1] is False
    assert scene.watermark() == 62


def test_where_nothing_is_lost_nothing_can_be_given_up(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    scene.run(max_records_per_run=20)
    with pytest.raises(Refused, match="no offset after 20 is lost"):
        approve(scene, 20, 50)
    assert scene.run().outcome == "done"
    scene.assert_copied()


def test_the_log_that_went_on_is_approved_again(scene: Scenario) -> None:
    overrun(scene)
    approve(scene, 50, 62)
    scene.source.delete_before(scene.topic, 0, 70)
    assert "--from 62 --until 70" in failed(scene.run())
    approve(scene, 62, 70)
    assert only(scene.run()).copied == 10
    assert [gap.range for gap in scene.bare_run().view().gaps[scene.key()]] == [
        OffsetRange(50, 62),
        OffsetRange(62, 70),
    ]


def test_copied_and_unverified_records_before_the_gap_hold_the_watermark(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    copy_once(scene.copy_job(run_id="died"))  # and nobody hears that it was read back
    scene.source.produce(scene.topic, numbered(30, 50))
    scene.source.delete_before(scene.topic, 0, 62)
    approve(scene, 50, 62)
    assert scene.watermark() == 0
    assert scene.run().outcome == "done"
    assert scene.watermark() == 80


def test_a_plan_that_is_older_than_the_gap_accounts_for_it(scene: Scenario) -> None:
    """A DAG run whose copy met the gap is cleared after the approval: its range holds lost offsets."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(80))
    run = scene.bare_run("cleared")
    made = steps.prepare(run, Request())
    scene.source.delete_before(scene.topic, 0, 62)
    steps.replicate(run, made, InProcess())
    assert "can no longer be read" in (only(steps.report(run, made, steps.NotDone())).error or "")
    approve(scene, 0, 62)
    done = steps.replicate(run, made, InProcess())
    line = only(steps.report(run, made, done.not_done))
    assert (line.error, line.range, line.copied, line.lost, line.missing, line.not_visible) == (
        None,
        OffsetRange(0, 80),
        18,
        62,
        0,
        0,
    )
    assert scene.watermark() == 80


def test_a_copier_that_was_at_work_is_fenced_by_an_approval(scene: Scenario) -> None:
    overrun(scene)
    run = scene.bare_run()
    zombie = run.clusters.target.session(scene.key())
    try:
        zombie.fence()
        position = zombie.position()
        assert position is not None
        approve(scene, 50, 62)
        with pytest.raises(Fenced):
            apply(zombie.ledger, zombie.transaction, [Change(key=scene.key(), write=(position,))])
    finally:
        zombie.close()
    assert scene.position().next_offset == 62


def test_a_partition_that_appeared_late_is_opened_behind_its_gap(scene: Scenario) -> None:
    for side in (scene.source, scene.target):
        side.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    scene.run()
    for side in (scene.source, scene.target):
        side.grow(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(40), 1)
    scene.source.delete_before(scene.topic, 1, 15)
    assert "--partition 1 --from 0 --until 15" in failed(scene.run(), 1)
    with pytest.raises(GapFound, match=r"exactly \[0, 15\)"):
        approve(scene, 0, 14, 1)
    gap, new = approve(scene, 0, 15, 1)
    assert (gap.kind, new) == ("late", True)
    assert scene.watermark(1) == 15
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert (only(report, 1).range, only(report, 1).copied) == (OffsetRange(15, 40), 25)
    assert scene.watermark(1) == 40
    assert scene.check(1, from_=15).clean
    assert approve(scene, 0, 15, 1) == (gap, False)


def test_a_late_partition_whose_target_is_occupied_is_not_opened(scene: Scenario) -> None:
    for side in (scene.source, scene.target):
        side.create(scene.topic)
    scene.run()
    for side in (scene.source, scene.target):
        side.grow(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(40), 1)
    scene.source.delete_before(scene.topic, 1, 15)
    scene.target.produce(scene.topic, numbered(3, 900), 1)
    with pytest.raises(Refused, match="already holds records"):
        approve(scene, 0, 15, 1)
    assert scene.key(1) not in scene.bare_run().view().positions


def test_copies_that_the_target_lost_before_they_were_verified(scene: Scenario) -> None:
    """What is given up is the proof: nothing is copied again, nothing is called equal, and the watermark goes on."""
    scene.settings |= {"copy": {"chunk_records": 50}}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(200))
    report = scene.run(after_copy(lambda: scene.target.delete_before(scene.topic, 0, 60)))
    assert "unverifiable" in (only(report).error or "") and "approve-gap" in only(report).remedy
    with pytest.raises(GapFound, match=r"exactly \[0, 100\)"):
        approve(scene, 0, 50)
    gap, new = approve(scene, 0, 100)
    assert (gap.kind, new, scene.watermark(), scene.position().next_offset) == ("unverifiable", True, 100, 200)
    assert scene.run().outcome == "done"
    assert scene.watermark() == 200
    run = scene.bare_run()
    assert str(run.view().of(scene.key(), 1).verified.coverage) == "[100, 200)"
    assert approve(scene, 0, 100) == (gap, False)
    with pytest.raises(Refused, match="no offset after 200 is lost"):
        approve(scene, 100, 150)


def test_a_truncated_source_is_no_gap(scene: Scenario) -> None:
    overrun(scene)
    scene.run()
    position = scene.position()
    run = scene.bare_run()
    session = run.clusters.target.session(scene.key())
    session.fence()
    position = position.adding(OffsetRange(50, 95), None, 0)  # as if 15 more had been copied than the source has now
    apply(session.ledger, session.transaction, [Change(key=scene.key(), write=(position,))])
    session.close()
    with pytest.raises(Refused, match="was truncated"):
        approve(scene, 80, 95)
    assert not run.view().gaps


def test_the_command(scene: Scenario) -> None:
    overrun(scene)
    place = ("--topic", scene.topic, "--partition", "0")
    code, out, _ = command(
        scene, "approve-gap", *place, "--from", "50", "--until", "60", "--reason", "why not", "--by", "ann", "--json"
    )
    assert code == 1 and "exactly [50, 62)" in json.loads(out)["error"]
    for wrong in (["62", "50"], ["-5", "50"], ["50", "50"], ["50", str(2**63)]):
        code, out, _ = command(
            scene, "approve-gap", *place, "--from", wrong[0], "--until", wrong[1], "--reason", "r", "--json"
        )
        assert (code, json.loads(out)["outcome"]) == (2, "failed"), out
    code, _, err = command(scene, "approve-gap", *place, "--from", "50", "--until", "62", "--reason", " ")
    assert code == 2 and "--reason" in err
    code, out, err = command(
        scene, "approve-gap", *place, "--from", "50", "--until", "62", "--reason", "too late", "--json"
    )
    document = json.loads(out)
    assert (
        code == 0 and document["new"] and document["gap"]["reason"] == "too late" and document["gap"]["approved_by"]
    ), err
    code, out, _ = command(scene, "status")
    assert code == 0 and "LOST" in out and "too late" in out
    assert scene.run().outcome == "done"
