"""A repair forgets nothing that was ever on the target, whatever receipts have expired meanwhile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_replication.ledger.entries import RECEIPTS
from kafka_replication.model.offsets import Coverage, OffsetRange
from tests.support.actions import approve, put
from tests.support.checker import read
from tests.support.command_line import command
from tests.support.jobs import after_copy
from tests.support.scenario import Scenario, numbered, only

# tests/unit/test_truth_life.py holds a repair against the position in random histories, also with expired receipts.
pytestmark = pytest.mark.slow


def expired(scene: Scenario) -> None:
    """200 records are on the target; the receipts of the first 100 expired before these were verified."""
    scene.settings["copy"] = {"chunk_records": 50}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(200))
    at = scene.key().ledger_partition
    line = only(scene.run(after_copy(lambda: scene.target.delete_before(RECEIPTS, at, receipt_at(scene, 100)))))
    assert line.error and "receipts of [0, 100) have expired" in line.error


def receipt_at(scene: Scenario, first: int) -> int:
    """Where the receipt of the chunk that begins at this source offset lies in the receipts topic."""
    stored = scene.bare_run().clusters.ledger.receipts({scene.key(): None}).stored[scene.key()]
    return next(one.offset for one in stored if one.receipt.range.from_ == first)


def forget_store(scene: Scenario) -> None:
    (scene.folder / "store.db").unlink()
    scene.store = type(scene)(scene.source, scene.target, scene.folder).store


def on_target(scene: Scenario) -> int:
    return len(read(scene.target.bootstrap, scene.topic, 0))


def repaired(scene: Scenario) -> dict[str, Any]:
    code, out, _ = command(scene, "ledger", "--repair", "--yes", "--json")
    assert code == 0
    (row,) = json.loads(out)["partitions"]
    return dict(row)


def test_copies_whose_verification_nobody_has_given_up_yet(own_scene: Scenario) -> None:
    scene = own_scene
    expired(scene)
    put(scene, scene.position(), next_offset=150, coverage=[[0, 150]])
    assert "receipts say that [150, 200) were copied" in (only(scene.run()).error or "")
    row = repaired(scene)
    assert (row["after"]["next_offset"], row["after"]["coverage"]) == (200, [[0, 200]])
    assert row["not_proven"] == [[0, 100]]
    assert "receipts of [0, 100) have expired" in (only(scene.run()).error or "")
    assert on_target(scene) == 200
    approve(scene, 0, 100)
    assert scene.run().outcome == "done" and scene.watermark() == 200
    scene.assert_copied()


@pytest.mark.parametrize("back", [50, 150])
def test_copies_whose_verification_was_given_up(own_scene: Scenario, back: int) -> None:
    scene = own_scene
    expired(scene)
    approve(scene, 0, 100)
    assert scene.run().outcome == "done"
    put(scene, scene.position(), next_offset=back, coverage=[[0, back]])
    put(scene, scene.bare_run().view().verified[scene.key()], coverage=[[100, 150]] if back > 100 else [])
    forget_store(scene)
    assert "receipts say that" in (only(scene.run()).error or "")
    row = repaired(scene)
    assert (row["after"]["next_offset"], row["after"]["coverage"]) == (200, [[0, 200]])
    assert row["not_proven"] == []
    assert scene.run().outcome == "done" and scene.watermark() == 200
    assert scene.bare_run().view().unproven(scene.key(), 1) == Coverage.of([OffsetRange(0, 100)])
    scene.assert_copied()


def test_a_position_that_cannot_be_read(own_scene: Scenario) -> None:
    """Nothing says any more whether the first 100 records were copied: they are left out, and named."""
    scene = own_scene
    expired(scene)
    put(scene, scene.position(), next_offset=2**70)
    code, out, _ = command(scene, "ledger", "--repair")
    assert code == 1 and "not proven:        it is unknown if [0, 100) were copied" in out
    assert repaired(scene)["not_proven"] == [[0, 100]]
    assert scene.run().outcome == "done"
    assert on_target(scene) == 200
