"""What is gone from the target and still at the source is copied again by a backfill: once, verified, and remembered."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.ledger.account import Change
from kafka_replication.ledger.writing import apply
from kafka_replication.model.errors import Fenced, Refused
from kafka_replication.model.offsets import Coverage
from kafka_replication.planning.backfill_request import parse
from kafka_replication.planning.plan import State
from kafka_replication.planning.recopy import give_back
from kafka_replication.reporting.backfill import plan_table
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import backfill as backfilling
from kafka_replication.runs import recopy
from kafka_replication.runs.reporting import standing
from tests.support import audits as audit
from tests.support import whole_runs
from tests.support.actions import approve, copied_once
from tests.support.children import end_of, spawn
from tests.support.jobs import InProcess, after_copy
from tests.support.scenario import Rec, Scenario, numbered, only

CHUNKS: dict[str, Any] = {"copy": {"chunk_records": 50}}


def backfill(scene: Scenario, from_: int, until: int) -> RunReport:
    request = parse(scene.replication(), topics=[scene.topic], from_=from_, until=until)
    return whole_runs.backfill(scene.replication(), scene.connections, scene.store, InProcess(), request)


def dry_run(scene: Scenario, from_: int, until: int) -> str:
    request = parse(scene.replication(), topics=[scene.topic], from_=from_, until=until)
    return plan_table(backfilling.preview(scene.bare_run(), request))


def state(scene: Scenario) -> State:
    return standing(scene.bare_run())[0].plan.state


def assert_whole_again(scene: Scenario) -> None:
    """Every record is there once, all of it is verified, and an audit finds only that the order is another one."""
    found = scene.check()
    assert not (found.lost or found.doubled or found.altered or found.foreign), str(found)
    assert (state(scene), scene.watermark()) == (State.IN_SYNC, 200)
    view = scene.bare_run().view()
    assert str(view.of(scene.key(), 1).verified.coverage) == str(scene.position().coverage) == "[0, 200)"
    report = audit.audit(scene.bare_run())
    assert report.outcome == "clean", report.text()
    scene.idle_run()


def test_after_an_approval_of_unverified_copies(scene: Scenario) -> None:
    """The source still has them: an approval is not the end of them."""
    scene.settings |= CHUNKS
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(200))
    scene.run(after_copy(lambda: scene.target.delete_before(scene.topic, 0, 60)))
    approve(scene, 0, 100)
    assert scene.run().outcome == "done" and state(scene) is State.PARTLY_REMOVED
    text = dry_run(scene, 0, 200)
    assert f"AGAIN {scene.topic}-0: [0, 59) are not on {scene.topic} any more and will be copied again" in text
    assert "after 140 newer offsets" in text or "ORDER" in text
    report = backfill(scene, 0, 200)
    assert report.outcome == "done", report.table()
    assert only(report).copied == 59
    assert "UNPROVEN" in dry_run(scene, 0, 200) and "verification was given up" in dry_run(scene, 0, 200)
    assert not scene.check().lost and not scene.check().doubled


@pytest.mark.parametrize("removed", [50, pytest.param(203, marks=pytest.mark.slow)])
def test_what_was_verified_and_removed(scene: Scenario, removed: int) -> None:
    """At the end of a chunk, and all of it: then nothing newer lies behind. The other tests remove a part of one."""
    scene.settings |= CHUNKS
    copied_once(scene, 200)
    scene.target.delete_before(scene.topic, 0, removed)
    text = dry_run(scene, 0, 200)
    assert "AGAIN" in text and ("ORDER" in text) is (removed < 200)
    assert state(scene) is State.REMOVED
    report = backfill(scene, 0, 200)
    assert report.outcome == "done", report.table()
    assert_whole_again(scene)
    assert str(scene.bare_run().view().removed[scene.key()].recopy_allowed).startswith("[0, ")


def test_markers_and_holes_do_not_move_the_boundary(scene: Scenario) -> None:
    """Of a chunk that has offsets without records, the source says which of them are gone."""
    scene.settings |= {"copy": {"chunk_records": 500}}
    scene.source.create(scene.topic)
    for first in range(0, 100, 10):
        scene.source.transaction(scene.topic, numbered(10, first), abort=first % 20 == 10)
    assert scene.run().outcome == "done"
    scene.target.delete_before(scene.topic, 0, 25)
    report = backfill(scene, 0, 110)
    assert report.outcome == "done", report.table()
    assert only(report).copied == 25
    found = scene.check()
    assert not (found.lost or found.doubled or found.altered or found.foreign), str(found)
    assert audit.audit(scene.bare_run()).outcome == "clean"


def test_a_source_that_changed_is_not_guessed_at(scene: Scenario) -> None:
    scene.settings |= CHUNKS
    copied_once(scene, 200)
    scene.target.delete_before(scene.topic, 0, 60)
    scene.source.delete_before(scene.topic, 0, 55)
    with pytest.raises(Refused, match=r"only a part of \[50, 100\) is gone"):
        backfill(scene, 55, 200)
    assert str(scene.position().coverage) == "[0, 200)"
    assert "LOST" in dry_run(scene, 0, 50) and "no longer at the source either" in dry_run(scene, 0, 50)


@pytest.mark.parametrize("step", ["send", pytest.param("commit", marks=pytest.mark.slow)])
def test_who_dies_while_giving_back_is_followed_by_one_who_copies_once(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Behind the first entry of the transaction, and after its commit."""
    given: list[tuple[Coverage, Change]] = []
    real = getattr(TransactionalProducer, step)

    def giving_back(*arguments: Any) -> tuple[Coverage, Change]:
        given.append(give_back(*arguments))
        return given[-1]

    def dies(producer: TransactionalProducer, *arguments: Any) -> None:
        real(producer, *arguments)
        if given:
            raise KeyboardInterrupt

    scene.settings |= CHUNKS
    copied_once(scene, 200)
    scene.target.delete_before(scene.topic, 0, 60)
    monkeypatch.setattr(recopy, "give_back", giving_back)
    monkeypatch.setattr(TransactionalProducer, step, dies)
    with pytest.raises(KeyboardInterrupt):
        backfill(scene, 0, 200)
    monkeypatch.undo()
    assert state(scene) is State.REMOVED and scene.watermark() == 200
    assert scene.run().outcome == "failed"
    assert backfill(scene, 0, 200).outcome == "done"
    assert_whole_again(scene)


def test_a_copier_that_was_at_work_is_fenced(scene: Scenario) -> None:
    copied_once(scene, 200)
    zombie = scene.bare_run().clusters.target.session(scene.key())
    try:
        zombie.fence()
        position = zombie.position()
        assert position is not None
        scene.target.delete_before(scene.topic, 0, 60)
        assert backfill(scene, 0, 200).outcome == "done"
        with pytest.raises(Fenced):
            apply(zombie.ledger, zombie.transaction, [Change(key=scene.key(), write=(position,))])
    finally:
        zombie.close()
    assert_whole_again(scene)


@pytest.mark.slow  # `test_at_once.py` has two backfills of one range
def test_two_processes_at_once_copy_it_once(scene: Scenario) -> None:
    """Both want to give the same offsets back: the second waits for the lease, and finds them copied."""
    scene.settings |= CHUNKS
    copied_once(scene, 200)
    scene.target.delete_before(scene.topic, 0, 120)
    arguments = (scene.source.bootstrap, scene.target.bootstrap, scene.store_url, json.dumps(scene.document()))
    both = [spawn("backfill_process", *arguments, scene.topic, "0", "200") for _ in range(2)]
    reports = [json.loads(process.rest()) for process in both]
    assert [process.returncode for process in both] == [0, 0], reports
    assert sum(line["copied"] for report in reports for line in report["ranges"]) == 118  # two were markers
    assert_whole_again(scene)


@pytest.mark.parametrize("failpoint", ["P2:3", pytest.param("P2:2", marks=pytest.mark.slow)])
def test_a_crash_between_the_entries_is_healed_without_transactions(scene: Scenario, failpoint: str) -> None:
    """Whatever was written of giving the offsets back, the receipts tell of each offset once."""
    scene.settings |= {**CHUNKS, "delivery": "at_least_once"}
    copied_once(scene, 200)
    scene.target.delete_before(scene.topic, 0, 60)
    assert state(scene) is State.REMOVED
    arguments = (scene.source.bootstrap, scene.target.bootstrap, scene.store_url, json.dumps(scene.document()))
    process = spawn("backfill_process", *arguments, scene.topic, "0", "50", failpoint=failpoint)
    assert end_of(process) == -signal.SIGKILL
    assert backfill(scene, 0, 50).outcome == "done"
    receipts = scene.bare_run().clusters.ledger.receipts({scene.key(): None}).of(scene.key(), 1)
    assert sorted(str(receipt.range) for receipt in receipts)[0].startswith("[0, ")
    covered = Coverage.of(receipt.range for receipt in receipts)
    assert sum(receipt.range.span for receipt in receipts) == covered.span, "no two receipts tell of one offset"


def test_the_second_copies_can_be_lost_too(scene: Scenario) -> None:
    scene.settings |= CHUNKS
    copied_once(scene, 200)
    for removed in (60, 240):
        scene.target.delete_before(scene.topic, 0, removed)
        assert state(scene) is State.REMOVED
        assert backfill(scene, 0, 200).outcome == "done"
        assert_whole_again(scene)
    scene.source.produce(scene.topic, [Rec(b"new")])
    assert scene.run().outcome == "done" and scene.watermark() == 201
