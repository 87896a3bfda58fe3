"""The delivery profiles on real brokers: what each promises, and what is counted where it promises less."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import replace

import pytest

from kafka_replication.model.errors import ForeignWriter
from kafka_replication.reporting.run import RunReport
from kafka_replication.reporting.status import PartitionStatus
from kafka_replication.runs.reporting import standing
from kafka_replication.runtime.failpoints import at_gate
from kafka_replication.verification.matching import Kind
from tests.support.actions import put
from tests.support.audits import audit
from tests.support.checker import Comparison, high_watermark
from tests.support.children import copy_process, end_of, result_of
from tests.support.scenario import Rec, Scenario, numbered, only
from tests.support.waiting import wait_until

PROFILES = ("at_least_once", "leader_ack", "fire_and_forget")
COUNT, CHUNK = 2_000, 400


def ready(scene: Scenario, delivery: str, count: int = COUNT) -> None:
    scene.settings |= {"delivery": delivery, "copy": {"chunk_records": CHUNK}}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(count))


def status_of(scene: Scenario) -> PartitionStatus:
    return next(row for row in standing(scene.bare_run()) if row.plan.key == scene.key())


def nothing_but_doubled(found: Comparison) -> int:
    """How many records are there twice; nothing else may be wrong."""
    assert not (found.lost or found.altered or found.foreign), found
    return len(found.doubled)


@pytest.mark.parametrize("delivery", PROFILES)
def test_every_record_arrives_where_nothing_fails(scene: Scenario, delivery: str) -> None:
    ready(scene, delivery, 1_700)
    report = scene.run()
    assert report.outcome == "done", report.table()
    scene.source.produce(scene.topic, numbered(300, 1_700))
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert (only(report).copied, only(report).digest_ok, report.delivery) == (300, True, delivery)
    scene.assert_copied()
    assert scene.watermark() == 2_000
    scene.idle_run()


def totals(report: RunReport) -> Counter[str]:
    """The terms of all ranges together."""
    names = ("copied", "copied_before", "lost_in_delivery", "duplicates", "not_visible", "missing")
    return Counter({name: sum(getattr(line, name) for line in report.ranges) for name in names})


@pytest.mark.parametrize(
    ("delivery", "failpoint", "doubled"),
    [
        pytest.param("at_least_once", "P1", CHUNK, marks=pytest.mark.slow),
        ("at_least_once", "P2:6", CHUNK),
        ("at_least_once", "P3:2", 0),
        ("fire_and_forget", "P2:6", CHUNK),
    ],
)
def test_what_a_killed_copier_leaves_is_copied_again_and_counted(
    scene: Scenario, delivery: str, failpoint: str, doubled: int
) -> None:
    """P2 is reached before the receipt and before the position of each chunk: 6 is before the third position."""
    ready(scene, delivery)
    assert end_of(copy_process(scene, scene.copy_job(), failpoint)) == -signal.SIGKILL
    report = scene.run()
    assert report.outcome == "done", report.table()
    sums = totals(report)
    assert nothing_but_doubled(scene.check()) == sums["duplicates"]
    assert sums["duplicates"] == doubled or delivery == "fire_and_forget"  # the client may not have sent all of them
    assert sums["copied"] + sums["copied_before"] == COUNT == sum(line.range.span for line in report.ranges)
    assert (status_of(scene).duplicates, status_of(scene).delivery) == (sums["duplicates"], delivery)
    scene.idle_run()


def test_a_target_that_lost_what_was_read_back_is_refused_before_anything_is_sent(scene: Scenario) -> None:
    """Such a profile may lose what it sends, not what it has shown. The session looks itself: a plan can be old."""
    ready(scene, "leader_ack", 1_000)
    assert scene.run().outcome == "done"
    scene.source.produce(scene.topic, numbered(100, 1_000))
    key = scene.key()
    put(scene, replace(scene.bare_run().view().verified[key], judged_until=1_300))
    with scene.bare_run().clusters.target.sink.session(key, scene.position().ids) as session:
        session.fence()
        with pytest.raises(ForeignWriter, match="ends at 1000, but our records were there up to 1300"):
            session.check_target(scene.position())
    report = scene.run()
    assert report.outcome == "failed", report.table()
    assert "the target lost its last 300 offsets after they were copied" in (only(report).error or "")
    assert (scene.target.size(scene.topic), status_of(scene).state) == (1_000, "target truncated")


def test_two_crashes_at_one_place_are_counted_twice(scene: Scenario) -> None:
    ready(scene, "at_least_once")
    for failpoint in ("P1:2", "P1", "P2:2"):
        assert end_of(copy_process(scene, scene.copy_job(), failpoint)) == -signal.SIGKILL
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert nothing_but_doubled(scene.check()) == totals(report)["duplicates"] == 3 * CHUNK
    assert scene.watermark() == COUNT


def test_a_foreign_record_among_left_overs_is_refused(scene: Scenario) -> None:
    """The left-overs are ours by their content; it is not."""
    ready(scene, "at_least_once")
    assert end_of(copy_process(scene, scene.copy_job(), "P1:2")) == -signal.SIGKILL
    scene.target.produce(scene.topic, [Rec(b"foreign", b"foreign")])
    report = scene.run()
    assert report.outcome == "failed"
    assert all("holds 1 records that the source does not have" in (line.error or "") for line in report.ranges)
    assert not scene.watermark()


def test_profiles_may_change_between_runs(scene: Scenario) -> None:
    """What a dead copier of the earlier profile left is ended, or counted by the later one."""
    ready(scene, "exactly_once")
    assert end_of(copy_process(scene, scene.copy_job(), "P2:3")) == -signal.SIGKILL  # its transaction stays open
    scene.settings["delivery"] = "at_least_once"
    report = scene.run()
    assert report.outcome == "done", report.table()
    scene.assert_copied()  # the transaction was aborted
    scene.source.produce(scene.topic, numbered(1_000, COUNT))
    later = scene.copy_job(run_id="later")
    assert end_of(copy_process(scene, later, "P1:2")) == -signal.SIGKILL  # its second chunk is left over
    scene.settings["delivery"] = "exactly_once"
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert nothing_but_doubled(scene.check()) == totals(report)["duplicates"] == CHUNK
    scene.source.produce(scene.topic, numbered(10, COUNT + 1_000))
    report = scene.run()
    assert (report.outcome, only(report).duplicates, report.delivery) == ("done", 0, "at_least_once"), report.table()
    assert scene.watermark() == COUNT + 1_010
    scene.idle_run()


def test_a_crash_in_the_first_chunk_after_the_change_refuses_nothing(scene: Scenario) -> None:
    """The position says what is promised before the first record is sent: what lies behind it may be left over."""
    ready(scene, "exactly_once", 10)
    assert scene.run().outcome == "done"
    scene.settings["delivery"] = "fire_and_forget"
    scene.source.produce(scene.topic, numbered(CHUNK + 10, 10))
    assert end_of(copy_process(scene, scene.copy_job(run_id="killed"), "P1")) == -signal.SIGKILL
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert nothing_but_doubled(scene.check()) == totals(report)["duplicates"]
    assert (status_of(scene).delivery, scene.watermark()) == ("fire_and_forget", CHUNK + 20)


def test_a_foreign_record_after_the_change_to_exactly_once_is_refused_as_ever(scene: Scenario) -> None:
    ready(scene, "at_least_once", 10)
    scene.run()
    scene.settings["delivery"] = "exactly_once"
    scene.source.produce(scene.topic, numbered(10, 10))
    assert scene.run().outcome == "done"
    scene.target.produce(scene.topic, [Rec(b"foreign", b"foreign")])
    scene.source.produce(scene.topic, numbered(10, 20))
    assert "ledger does not know" in (only(scene.run()).error or "")


def test_what_a_dead_copier_left_is_counted_before_the_target_is_shared(scene: Scenario) -> None:
    """Among records of others nobody could tell it from theirs."""
    ready(scene, "at_least_once")
    assert end_of(copy_process(scene, scene.copy_job(), "P2:6")) == -signal.SIGKILL
    behind, left_over = scene.position().target_end, high_watermark(scene.target.bootstrap, scene.topic, 0)
    assert behind < left_over
    scene.settings |= {"delivery": "exactly_once", "on_existing_target": "share"}
    refused = only(scene.run())
    assert "could not be told from records of others" in (refused.error or ""), refused
    report = scene.run(on_existing_target="refuse")
    assert report.outcome == "done", report.table()
    counted = sum(line.duplicates for line in report.ranges)
    assert counted == left_over - behind == nothing_but_doubled(scene.check())
    scene.source.produce(scene.topic, numbered(100, COUNT))
    shared = scene.run()
    assert (shared.outcome, only(shared).copied, only(shared).duplicates) == ("done", 100, 0), shared.table()
    assert nothing_but_doubled(scene.check()) == left_over - behind
    scene.idle_run()


def test_a_sleeper_that_wakes_up_doubles_and_loses_nothing(scene: Scenario) -> None:
    """Nothing fences it. It finds that the position has moved, and its records are counted."""
    ready(scene, "at_least_once")
    gate = scene.folder / "gate"
    gate.touch()
    sleeper = copy_process(scene, scene.copy_job(), f"P1:2={gate}")  # its second chunk is sent
    wait_until(lambda: at_gate(gate).exists())
    report = scene.run()
    gate.unlink()
    woken = result_of(sleeper)
    assert report.outcome == "done", report.table()
    assert woken.fenced and "another copier has written a position" in (woken.error or ""), woken
    assert nothing_but_doubled(scene.check()) == totals(report)["duplicates"] == CHUNK
    assert scene.watermark() == COUNT


def test_the_audit_tells_duplicates_from_differences(scene: Scenario) -> None:
    ready(scene, "at_least_once")
    assert end_of(copy_process(scene, scene.copy_job(), "P1:2")) == -signal.SIGKILL
    assert scene.run().outcome == "done"
    (found,) = audit(scene.bare_run()).partitions
    assert (found.outcome, found.duplicates, found.lost_in_delivery) == ("clean", CHUNK, 0), found
    assert (found.chunks, found.by_content) == (COUNT // CHUNK, COUNT)
    scene.target.produce(scene.topic, [Rec(b"foreign", b"foreign")])
    (found,) = audit(scene.bare_run()).partitions
    assert (found.outcome, found.duplicates, found.counts[Kind.EXTRA]) == ("differs", CHUNK, 1), found


@pytest.mark.parametrize("delivery", ["at_least_once"])
def test_a_refused_record_is_named_and_all_before_it_are_copied(scene: Scenario, delivery: str) -> None:
    """The search for it sends records again, which are counted."""
    ready(scene, delivery, 300)
    scene.source.produce(scene.topic, [Rec(b"large", os.urandom(50_000)), *numbered(100, 300)])
    scene.target.create(scene.topic, config={"max.message.bytes": "20000"})
    report = scene.run()
    line = only(report)
    assert (report.outcome, scene.watermark()) == ("failed", 300), report.table()
    assert "refuses the record at offset 300" in (line.error or "")
    scene.target.set(scene.topic, max_message_bytes="1000000")
    assert scene.run().outcome == "done"
    assert nothing_but_doubled(scene.check()) == status_of(scene).duplicates
