"""A replication goes on behind a copy that MirrorMaker 2 or another tool made: nothing is lost, nothing doubled by us."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.connections import SparkConnection
from kafka_replication.kafka.groups import Committed, commit
from kafka_replication.model.errors import BadInput, Refused
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.reporting.adopted import AdoptDocument, AdoptRow
from kafka_replication.runs import adopting, groups
from kafka_replication.runs.adopting import DATA, MIRRORMAKER, Adoption
from kafka_replication.runs.audit import audit
from kafka_replication.runs.reset import reset_topic
from kafka_replication.runs.run import open_run
from kafka_replication.spark.launcher import terminal_launcher
from kafka_replication.verification.auditing import Size
from kafka_replication.verification.matching import Kind
from tests.support.checker import Record, read
from tests.support.command_line import command
from tests.support.mirrored import Mirrored, check_groups, killed_at_random
from tests.support.scenario import Rec, Scenario, numbered, only

RECORDS = 400


def filled(scene: Scenario, partitions: int = 1) -> None:
    """Plain records, transactions, an aborted one, and equal records."""
    scene.source.create(scene.topic, partitions)
    scene.target.create(scene.topic, partitions)
    for partition in range(partitions):
        scene.source.produce(scene.topic, numbered(RECORDS // 2), partition)
        scene.source.transaction(scene.topic, numbered(50, 10_000), partition, abort=True)
        scene.source.produce(scene.topic, [Rec(b"equal", b"x", (("h", b"1"),), 1_700_000_001_000)] * 5, partition)
        scene.source.transaction(scene.topic, numbered(RECORDS // 2, RECORDS // 2), partition)


def adoption(scene: Scenario, from_: str = MIRRORMAKER, *, apply: bool = True, **more: Any) -> AdoptDocument:
    run = open_run(scene.replication(), scene.connections, scene.store, "adopt")
    return (adopting.adopt if apply else adopting.preview)(run, Adoption(from_=from_, **more))


def one(document: AdoptDocument, partition: int = 0) -> AdoptRow:
    return next(row for row in document.partitions if row.partition == partition)


def assert_whole(scene: Scenario, copy: Mirrored, partition: int, before: list[tuple[int, Record]]) -> None:
    """An independent reader finds behind the tool's copy exactly what the source has behind it, in order."""
    there = read(scene.target.bootstrap, scene.topic, partition)
    assert there[: len(before)] == before
    rest = [r for offset, r in read(scene.source.bootstrap, scene.topic, partition) if offset >= copy.ends[partition]]
    assert [r for _, r in there[len(before) :]] == rest


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_that_was_killed_at_random_moments(scene: Scenario, seed: int) -> None:
    chance = random.Random(seed)
    filled(scene, 3)
    copy = Mirrored(scene, lambda record: seed != 1 or (record.key or b"")[-1:] not in b"37")
    for partition in range(3):
        kept = RECORDS if seed != 1 else RECORDS * 8 // 10
        copy.copy(partition, killed_at_random(chance, kept, partition))
    copy.store(lag=chance.randint(0, 30))
    before = [read(scene.target.bootstrap, scene.topic, partition) for partition in range(3)]
    dry = adoption(scene, apply=False)
    assert not scene.bare_run().view().positions
    done = adoption(scene)
    assert [(row.state, row.start) for row in done.partitions] == [("adopted", copy.ends[n]) for n in range(3)], (
        dry.text
    )
    for partition, row in enumerate(done.partitions):
        assert row.adopted is not None and row.adopted.source == MIRRORMAKER
        assert (row.adopted.compared, row.adopted.doubles) == (len(before[partition]), copy.doubles[partition])
        assert bool(row.adopted.missing) == (seed == 1 and copy.ends[partition] > 10)
    report = scene.run()
    assert report.outcome != "failed", report.table()
    for partition in range(3):
        assert_whole(scene, copy, partition, before[partition])
        assert scene.position(partition).adopted == done.partitions[partition].adopted, "it stays in the ledger"
    check_groups(scene, 3, chance)
    scene.idle_run()


def test_the_command_its_texts_and_its_documents(scene: Scenario) -> None:
    filled(scene, 2)
    copy = Mirrored(scene)
    copy.copy(0, [(0, 250), (200, 230)])
    copy.store()
    code, out, _ = command(scene, "adopt", "--from", "mirrormaker2")
    assert code == 0 and "with --apply 1 partitions are adopted" in out and "nothing to adopt" not in out
    assert f"{scene.topic}-1: the target has no records of it; the next run opens it as the file says" in out
    code, out, _ = command(scene, "adopt", "--from", "data", "--prove", "--apply", "--json")
    done = json.loads(out)
    assert code == 0 and done["applied"] and done["partitions"][0]["adopted"]["proof"] == "whole"
    assert [row["state"] for row in done["partitions"]] == ["adopted", "nothing to adopt"]
    code, out, _ = command(scene, "adopt", "--from", "data", "--apply", "--json")
    assert code == 0 and json.loads(out)["partitions"][0]["state"] == "adopted before"
    scene.source.produce(scene.topic, numbered(10, 5000))
    report = scene.run()
    assert report.outcome == "done" and "ADOPTED 1 partitions go on behind a copy" in report.table()
    assert only(report, 1).copied == RECORDS + 5, "a partition without a copy is opened as the file says"
    adopted = f"ADOPTED {scene.topic}-0: another tool copied the source offsets below {copy.ends[0]} (adopt --from data"
    for name in ("status", "ledger", "audit"):
        code, out, _ = command(scene, name)
        assert code == 0 and adopted.removeprefix("ADOPTED ") in out.replace("ADOPTED ", ""), (name, out)
    _, out, _ = command(scene, "status", "--json")
    assert json.loads(out)["partitions"][0]["adopted"]["doubles"] == 30
    _, out, _ = command(scene, "ledger", "--json")
    assert json.loads(out)["partitions"][0]["position"]["adopted"]["doubles"] == 30


def test_what_says_where_the_copy_ends(scene: Scenario) -> None:
    filled(scene)
    copy = Mirrored(scene)
    copy.copy(0, [(0, 250)])
    end = copy.ends[0]
    with pytest.raises(BadInput, match=r"--from nothing\.json"):
        adoption(scene, "nothing.json")
    table = scene.folder / "offsets.json"
    for text, start, said in (
        ({scene.topic: {"0": end}}, end, ""),
        ({scene.topic: {"0": end - 20}}, end, ""),
        ({scene.topic: {"0": end + 20}}, None, f"stored {end + 20} as the next source offset"),
        ({}, None, "does not have this partition"),
    ):
        table.write_text(json.dumps(text))
        row = one(adoption(scene, str(table), apply=False))
        assert row.start == start and said in (row.error or ""), row
    table.write_text('{"orders": 1}')
    with pytest.raises(BadInput, match="orders"):
        adoption(scene, str(table))
    copy.store(syncs_only=True)
    row = one(adoption(scene, apply=False))
    assert row.start == end and end - 50 < (row.stored or 0) < end, "the newest sync is a hint, too"
    copy.store(alias=f"{scene.name}-a")
    copy.store(alias=f"{scene.name}-b")
    assert one(adoption(scene, apply=False)).stored == end
    copy.ends[0] -= 5
    copy.store(alias=f"{scene.name}-b")
    assert "from several clusters" in (one(adoption(scene, apply=False)).error or "")
    assert one(adoption(scene, DATA)).start == end


def test_a_copy_of_aborted_records(scene: Scenario) -> None:
    """MirrorMaker's consumer reads uncommitted records unless it is told otherwise."""
    filled(scene)
    copy = Mirrored(scene, committed=False)
    copy.copy(0, [(0, 300)])
    copy.store()
    before = read(scene.target.bootstrap, scene.topic, 0)
    row = one(adoption(scene))
    assert (row.start, row.aborted) == (copy.ends[0], 50) and row.adopted and row.adopted.missing == 0
    assert scene.run().outcome == "done"
    assert_whole(scene, copy, 0, before)


def test_a_tool_that_still_writes(scene: Scenario) -> None:
    """Its records are refused by name; once it has stopped, the copy is adopted anew."""
    filled(scene)
    copy = Mirrored(scene)
    copy.copy(0, [(0, 250)])
    copy.store()
    assert one(adoption(scene)).state == "adopted"
    copy.copy(0, [(230, 270)])
    report = scene.run()
    assert report.outcome == "failed" and "holds a record at offset 250 that the ledger does not know" in (
        only(report).error or ""
    )
    before = read(scene.target.bootstrap, scene.topic, 0)
    row = one(adoption(scene))
    assert (row.state, row.start) == ("adopted", copy.ends[0]), row
    assert scene.run().outcome == "done"
    assert_whole(scene, copy, 0, before)


def test_what_cannot_be_proved_is_refused(scene: Scenario) -> None:
    """One partition holds no other back, and a run opens none of those that were refused."""
    scene.settings |= {"timeouts": {"request": 2}}
    filled(scene, 5)
    copy = Mirrored(scene)
    for partition in range(5):
        copy.copy(partition, [(0, 100)])
    scene.target.produce(scene.topic, numbered(1, 777_777), 0)
    changed = [Rec(each.key, b"changed", (), each.timestamp) for each in numbered(3, 100)]
    scene.target.produce(scene.topic, changed, 1)
    scene.source.delete_before(scene.topic, 2, copy.ends[2] + 10)
    transaction = scene.target.transactional()
    transaction.begin_transaction()
    transaction.produce(scene.topic, b"open", partition=3)
    transaction.flush()
    done = adoption(scene, DATA)
    transaction.abort_transaction()
    for row, expected in zip(
        done.partitions,
        (
            "1 records of the target, the first at offset 100, are not at the source",
            "3 records of the target",
            "the source no longer has any",
            "a transaction is open",
        ),
        strict=False,
    ):
        assert row.state == "refused" and expected in (row.error or "") and row.remedy, row
    assert one(done, 4).state == "adopted"
    report = scene.run()
    assert all("already holds records" in (only(report, partition).error or "") for partition in range(4))
    assert not only(report, 4).error


@pytest.mark.parametrize("settings", [{"partitioning": "by_key"}, {"delivery": "at_least_once"}])
def test_settings_that_cannot_adopt(scene: Scenario, settings: dict[str, str]) -> None:
    scene.settings |= settings
    with pytest.raises(Refused, match=f"cannot be adopted with this {next(iter(settings))}"):
        adoption(scene, DATA, apply=False)


def test_reset_undoes_it(scene: Scenario) -> None:
    filled(scene)
    Mirrored(scene).copy(0, [(0, 100)])
    assert one(adoption(scene, DATA)).state == "adopted"
    scene.target.delete(scene.topic)
    (position,) = reset_topic(scene.bare_run("reset"), scene.topic).values()
    assert position.adopted is None and position.start == 0
    assert scene.run().outcome == "done"
    scene.assert_copied()


def test_a_tool_that_was_not_stopped_and_a_run_without_records(scene: Scenario) -> None:
    """No group passes what the tool has added, and its copy is adopted again: nothing of ours lies behind it."""
    scene.source.create(scene.topic)
    scene.target.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    copy = Mirrored(scene)
    copy.copy(0, [(0, 50)])
    scene.source.transaction(scene.topic, numbered(1, 50), abort=True)
    assert one(adoption(scene, DATA)).state == "adopted"
    scene.run()  # offsets without a record
    scene.source.produce(scene.topic, numbered(30, 60))
    scene.target.produce(scene.topic, numbered(1, 60))
    run = scene.bare_run()
    assert run.comparison.foreign_now(run.view(), [scene.key()]) == {scene.key(): 50}, "already the first one is seen"
    scene.target.produce(scene.topic, numbered(29, 61))
    group, at = f"{scene.name}-late", TopicPartition(scene.topic, 0)
    commit(scene.source.admin, group, {at: Committed(scene.position().next_offset)})
    scene.settings["groups"] = {"include": [group]}
    [row] = groups.move(scene.bare_run("groups"), apply=False).groups
    assert [place.place for place in row.partitions] == [50]
    again = one(adoption(scene, DATA))
    assert (again.state, again.start) == ("adopted", scene.source.size(scene.topic))
    scene.source.produce(scene.topic, numbered(3, 90))
    assert scene.run().outcome == "done"
    assert len(read(scene.target.bootstrap, scene.topic, 0)) == 83


def test_a_whole_copy_is_compared_on_spark(scene: Scenario) -> None:
    """The same as in this process, with the reason and the remedy of a partition that is refused."""
    filled(scene, 3)
    copy = Mirrored(scene)
    for partition in range(2):
        copy.copy(partition, killed_at_random(random.Random(partition), RECORDS, 2))
    copy.store()
    scene.target.produce(scene.topic, numbered(5, 70_000), 2)
    asked = Adoption(from_=MIRRORMAKER, whole=True)
    run = open_run(scene.replication(), scene.connections, scene.store, "adopt")
    here = adopting.preview(run, asked)
    with terminal_launcher(lambda: SparkConnection("local[2,4]", {}), {}) as spark:
        there = adopting.adopt(run, asked, spark, least=Size())
    assert [row.state for row in there.partitions] == ["adopted", "adopted", "refused"]
    for one, other in zip(here.partitions, there.partitions, strict=True):
        assert (one.start, one.stored, one.aborted) == (other.start, other.stored, other.aborted)
        assert (one.error, one.remedy) == (other.error, other.remedy)
        if one.adopted and other.adopted:
            assert replace(one.adopted, time="") == replace(other.adopted, time="")
    assert scene.run().outcome != "done", "partition 2 stays refused"
    check_groups(scene, 2, random.Random(1))


def test_an_audit_searches_behind_the_adopted_copy(scene: Scenario) -> None:
    filled(scene)
    Mirrored(scene).copy(0, [(0, 100), (50, 100)])
    assert one(adoption(scene, DATA)).state == "adopted"
    assert scene.run().outcome == "done"
    assert audit(scene.bare_run()).outcome == "clean"
    scene.target.produce(scene.topic, numbered(2, 9_000))
    (found,) = audit(scene.bare_run()).partitions
    assert found.counts[Kind.EXTRA] == 2
