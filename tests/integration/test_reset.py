"""A topic whose source or target was re-created starts anew in the next generation; nothing of the old one can get in its way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.ledger.port import Ledger, TransactionPort
from kafka_replication.ledger.writing import apply
from kafka_replication.model.errors import Fenced, PreflightFailed, Refused
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.runs import reset, steps
from kafka_replication.runs.reset import reset_topic
from kafka_replication.targets.start_offsets import Ends, Failed, TargetRecords
from tests.support.checker import read
from tests.support.command_line import command
from tests.support.jobs import copy_once
from tests.support.scenario import ALL, Rec, Scenario, numbered, only


def copied(scene: Scenario, partitions: int = 2) -> None:
    scene.source.create(scene.topic, partitions)
    for partition in range(partitions):
        scene.source.produce(scene.topic, numbered(50 + partition), partition)
    assert scene.run().outcome == "done"


def test_a_deleted_target_is_created_and_filled_again(scene: Scenario) -> None:
    copied(scene)
    old = scene.position()
    scene.target.delete(scene.topic)
    assert f"reset {scene.name}.yaml --topic {scene.topic} --confirm {scene.topic}" in only(scene.run()).remedy
    done = reset_topic(scene.bare_run("reset"), scene.topic)
    assert {(each.generation, each.start, each.next_offset) for each in done.values()} == {(2, 0, 0)}
    assert scene.position().ids.target_topic != old.ids.target_topic
    assert (scene.watermark(0), scene.watermark(1)) == (0, 0)
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert sorted(each.copied for each in report.ranges) == [50, 51]
    scene.assert_copied(0, 1)
    assert (scene.watermark(0), scene.watermark(1)) == (50, 51)
    scene.idle_run()
    receipts = scene.bare_run().clusters.ledger.receipts({scene.key(): None})
    assert receipts.generations(scene.key()) == {1, 2}, "history is kept"
    stored = scene.store.watermarks(scene.name)[scene.key()]
    assert (stored.generation, stored.offset) == (2, 50)


def test_a_recreated_source_needs_an_empty_target_or_a_word(scene: Scenario) -> None:
    copied(scene, 3)
    scene.source.delete(scene.topic)
    scene.source.create(scene.topic, 2)
    for partition in range(2):
        scene.source.produce(scene.topic, numbered(7, 900), partition)
    with pytest.raises(Refused, match=r"still holds records \(the first at offset 0\)"):
        reset_topic(scene.bare_run("reset"), scene.topic)
    assert scene.position().generation == 1
    scene.settings |= {"on_existing_target": "append"}
    reset_topic(scene.bare_run("reset"), scene.topic)
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert [record.key for _, record in read(scene.target.bootstrap, scene.topic, 0)][-7:] == [
        each.key for each in numbered(7, 900)
    ]
    assert (scene.position(0).generation, scene.position(2).generation) == (2, 1)
    scene.idle_run()


def test_a_zombie_of_the_old_generation_is_fenced(scene: Scenario) -> None:
    copied(scene, 1)
    scene.target.delete(scene.topic)
    run = scene.bare_run()
    zombie = run.clusters.target.session(scene.key())
    try:
        zombie.fence()
        position = zombie.position()
        assert position is not None
        reset_topic(scene.bare_run("reset"), scene.topic)
        with pytest.raises(Fenced):
            apply(zombie.ledger, zombie.transaction, [Change(key=scene.key(), write=(position,))])
    finally:
        zombie.close()
    assert scene.position().generation == 2


def test_a_run_that_was_planned_before_copies_nothing_after(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    job = scene.copy_job()
    reset_topic(scene.bare_run("reset"), scene.topic)
    result = copy_once(job)
    assert result.copied == 0 and "the plan is for generation 1, the ledger is at 2" in (result.error or "")
    assert scene.run().outcome == "done"
    scene.assert_copied()


def test_a_reset_that_died_is_finished_by_the_next(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies after one of two partitions; the store did not hear of it, and a run copies that partition before the second reset."""
    copied(scene)
    scene.target.delete(scene.topic)

    def dies(ledger: Ledger, transaction: TransactionPort, changes: list[Change]) -> None:
        if changes[0].key.source.partition == 1:
            raise KeyboardInterrupt
        apply(ledger, transaction, changes)

    monkeypatch.setattr(reset, "apply", dies)
    with pytest.raises(KeyboardInterrupt):
        reset_topic(scene.bare_run("dies"), scene.topic)
    monkeypatch.undo()
    report = scene.run()
    assert (
        report.outcome == "failed" and only(report, 0).error is None and "re-created" in (only(report, 1).error or "")
    ), report.table()
    assert list(reset_topic(scene.bare_run("again"), scene.topic)) == [scene.key(1)]
    assert scene.run().outcome == "done"
    scene.assert_copied(0, 1)
    assert (scene.watermark(0), scene.watermark(1)) == (50, 51)


def test_a_lost_ledger(scene: Scenario) -> None:
    """The store and the receipts still know which generation there was."""
    copied(scene, 1)
    scene.target.produce(POSITIONS, [Rec(scene.key().entry("position"), None)], scene.key().ledger_partition)
    assert "has no entry" in (only(scene.run()).error or "")
    scene.target.delete(scene.topic)
    assert reset_topic(scene.bare_run("reset"), scene.topic)[scene.key()].generation == 2
    assert scene.run().outcome == "done"
    scene.assert_copied()


def test_latest_starts_at_the_end(scene: Scenario) -> None:
    copied(scene, 1)
    scene.target.delete(scene.topic)
    scene.settings |= {"start_from": "latest"}
    assert reset_topic(scene.bare_run("reset"), scene.topic)[scene.key()].start == 50
    scene.source.produce(scene.topic, numbered(5, 50))
    assert only(scene.run()).copied == 5
    scene.assert_copied(from_=50)


def test_an_unknown_topic_is_refused(scene: Scenario) -> None:
    copied(scene, 1)
    with pytest.raises(PreflightFailed, match="unknown source topic nothing"):
        reset_topic(scene.bare_run("reset"), "nothing")


def test_the_command(scene: Scenario) -> None:
    copied(scene, 1)
    scene.target.delete(scene.topic)
    code, _, err = command(scene, "reset", "--topic", scene.topic, "--confirm", "yes")
    assert code == 2 and "nothing was changed" in err
    assert scene.target.partitions(scene.topic) == 0 and scene.position().generation == 1
    code, out, err = command(scene, "reset", "--topic", scene.topic, "--confirm", scene.topic, "--json")
    assert code == 0, err
    assert json.loads(out)["partitions"] == [
        {"topic": scene.topic, "partition": 0, "target_topic": scene.topic, "generation": 2, "start": 0}
    ]
    code, _, err = command(scene, "reset", "--topic", scene.topic, "--confirm", scene.topic)
    assert code == 0, "nothing was copied yet: once more is harmless"
    assert scene.run().outcome == "done"
    code, _, err = command(scene, "reset", "--topic", scene.topic, "--confirm", scene.topic)
    assert code == 1 and "still holds records" in err


def test_a_run_that_was_planned_before_a_reset_is_planned_again(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    run = scene.bare_run("cleared")
    old = steps.prepare(run, ALL)
    scene.source.delete(scene.topic)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(7, 500))
    reset_topic(scene.bare_run("reset"), scene.topic)
    assert scene.run().outcome == "done"
    [line] = steps.report(run, old, steps.NotDone()).ranges
    assert line.error and line.missing == 10, "what it planned was never copied, though the same offsets are"
    new = steps.prepare(run, ALL)
    assert (new.idle, [each.generation for each in new.partitions]) == (True, [2])
    assert steps.prepare(run, ALL) == new


def test_a_record_that_comes_while_a_topic_is_reset_is_named(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes after the first look at the target, and before the new position says where ours begin."""
    copied(scene, 1)
    scene.target.delete(scene.topic)
    ends = TargetRecords.ends

    def somebody_was_faster(*arguments: Any) -> tuple[dict[PartitionKey, Ends], Failed]:
        scene.target.produce(scene.topic, [Rec(b"foreign")])
        return ends(*arguments)

    monkeypatch.setattr(TargetRecords, "ends", somebody_was_faster)
    with pytest.raises(Refused, match="still holds records"):
        reset_topic(scene.bare_run("reset"), scene.topic)
