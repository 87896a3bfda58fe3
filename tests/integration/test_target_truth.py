"""What `status`, `run` and `verify` say of a target that somebody changed after its copies were verified."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from typing import Any

from kafka_replication.model.offsets import OffsetRange
from kafka_replication.planning.plan import State
from kafka_replication.reporting.causes import partition_causes, problems
from kafka_replication.reporting.run import RunReport
from kafka_replication.reporting.status import PartitionStatus
from kafka_replication.runs.reporting import standing
from tests.support.actions import approve, copied_once
from tests.support.command_line import command
from tests.support.jobs import InProcess
from tests.support.scenario import Scenario, numbered, only

CHUNKS: dict[str, Any] = {"copy": {"chunk_records": 50}}


def row(scene: Scenario, partition: int = 0) -> PartitionStatus:
    rows = standing(scene.bare_run())
    return next(row for row in rows if row.plan.key.source.partition == partition)


def wrong(scene: Scenario) -> list[str]:
    return problems(scene.replication(), standing(scene.bare_run()), datetime.now(UTC))


def ledger_entry(scene: Scenario) -> Any:
    return scene.bare_run().view().removed.get(scene.key())


def test_verified_copies_that_were_removed_are_said_until_somebody_accepts_it(scene: Scenario) -> None:
    scene.settings |= CHUNKS
    copied_once(scene, 200)
    assert (row(scene).plan.state, row(scene).removed, row(scene).verified_by, wrong(scene)) == (
        State.IN_SYNC,
        0,
        "digest",
        [],
    )
    scene.target.delete_before(scene.topic, 0, 60)
    code, out, _ = command(scene, "status", "--json")
    document = json.loads(out)
    (line,) = document["partitions"]
    said = f"no longer on the target: [0, 59) of {scene.topic}-0 (59 offsets; {scene.topic}-0)"
    assert code == 1 and document["problems"] == [f"{scene.topic}-0: {said}"]
    assert (line["state"], line["removed"], line["lag"], line["error"]) == ("removed from the target", 59, 0, said)
    assert "--from 0 --until 59" in line["remedy"]
    code, shown, _ = command(scene, "status")
    pasted = [part for part in shown.splitlines() if part.strip().startswith("kafka-replication ")]
    assert code == 1 and len(pasted) == 2, shown
    (_, verb, file, *rest), (_, other, same, *_) = map(shlex.split, pasted)
    assert file == same == str(scene.folder / f"{scene.name}.yaml")
    assert (verb, other) == ("backfill", "approve-gap")
    code, out, err = command(scene, verb, *rest, "--dry-run", "--json")
    assert (code, json.loads(out)["offsets_to_copy"]) == (0, 59), err
    scene.source.produce(scene.topic, numbered(30, 200))
    report = scene.run()
    lines = {line.range: line for line in report.ranges}
    assert report.outcome == "failed" and lines[OffsetRange(0, 59)].missing == 59
    assert lines[OffsetRange(200, 230)].error is None and lines[OffsetRange(200, 230)].digest_ok
    assert scene.watermark() == 230 and ledger_entry(scene).target_start == 60
    (cause,) = partition_causes(scene.replication(), [row(scene)])
    assert cause.key.kind == "removed" and said in cause.what
    code, out, _ = command(scene, "verify", "--json")
    assert code == 1 and json.loads(out)["ranges"][0]["error"] == said
    assert approve(scene, 0, 59)[1]
    assert (row(scene).plan.state, row(scene).removed, wrong(scene)) == (State.PARTLY_REMOVED, 59, [])
    assert scene.idle_run().removed


def test_what_the_targets_retention_explains_is_information(scene: Scenario) -> None:
    """The records are of 2023. What was copied with present timestamps cannot have been removed by age."""
    scene.settings |= {"target_topics": {"config": {"retention.ms": "31536000000"}}}
    scene.target.create(scene.topic)
    copied_once(scene, 100)
    scene.target.set(scene.topic, retention_ms="31536000000")
    scene.target.delete_before(scene.topic, 0, 40)
    assert (row(scene).plan.state, row(scene).removed, wrong(scene)) == (State.PARTLY_REMOVED, 40, [])
    report = scene.idle_run()
    assert report.removed == (
        f"no longer on the target: [0, 40) of {scene.topic}-0 (40 offsets; {scene.topic}-0); its retention, or an approval,"
        " explains it",
    )
    scene.target.set(scene.topic, retention_ms="-1")
    scene.target.delete_before(scene.topic, 0, 50)
    (problem,) = wrong(scene)
    assert "[40, 50)" in problem and row(scene).removed == 50
    scene.target.set(scene.topic, retention_ms="31536000000")
    assert scene.idle_run().removed  # as the target is configured now, its retention may have done it
    assert str(ledger_entry(scene).coverage) == "[0, 50)"


def test_all_replaced_in_place_is_a_record_of_others(scene: Scenario) -> None:
    copied_once(scene, 100)
    scene.target.delete_before(scene.topic, 0, 101)
    scene.target.produce(scene.topic, numbered(100))
    found = row(scene)
    assert found.plan.state is State.FOREIGN and "a record at offset 101" in found.plan.what
    report = scene.run()
    assert report.outcome == "failed" and only(report).digest_ok is None


def test_a_foreign_record_that_comes_during_a_run_is_found_before_its_end(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    report = scene.run(InProcess(then=lambda job: scene.target.produce(scene.topic, numbered(1, 900))))
    line = only(report)
    assert report.outcome == "failed" and "at offset 51 that the ledger does not know" in (line.error or "")
    assert (line.digest_ok, line.copied, line.missing) == (None, 50, 0)


def test_no_line_says_good_things_beside_an_error(scene: Scenario) -> None:
    copied_once(scene, 50)
    scene.target.delete(scene.topic)
    scene.target.create(scene.topic)
    report: RunReport = scene.run()
    line = only(report)
    assert "copies below offset 50 are gone" in (line.error or "")
    assert (line.digest_ok, line.copied_before, line.missing) == (None, 0, 50)
    code, out, _ = command(scene, "verify")
    assert code == 1 and "are gone with it" in out


def test_an_aborted_transaction_behind_ours_is_no_record(scene: Scenario) -> None:
    copied_once(scene, 50)
    scene.target.transaction(scene.topic, numbered(5, 900), abort=True)
    assert row(scene).plan.state is State.IN_SYNC
    scene.idle_run()


def test_what_was_only_counted_is_called_counted(scene: Scenario) -> None:
    scene.settings |= {"verify": {"level": "count"}}
    copied_once(scene, 50)
    assert row(scene).verified_by == "count"
    assert scene.idle_run().table() == "everything is copied and verified (by count)"
    code, out, _ = command(scene, "run", "--json")
    assert (code, json.loads(out)["verified_by"]) == (0, "count")
