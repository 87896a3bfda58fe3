"""A ledger that somebody changed is noticed before a record is copied. A reset of the topic ends it."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.planning.plan import State
from kafka_replication.runs.reporting import standing
from tests.support.actions import copied_once, put
from tests.support.command_line import command
from tests.support.scenario import Rec, Scenario, only

CHUNKS: dict[str, Any] = {"copy": {"chunk_records": 100}}


def set_back(scene: Scenario) -> None:
    """Position and verified coverage of 700, although 1,000 were copied; and the store is lost."""
    copied_once(scene, 1000)
    view = scene.bare_run().view()
    put(scene, view.positions[scene.key()], next_offset=700, coverage=[[0, 700]])
    put(scene, view.verified[scene.key()], coverage=[[0, 700]])
    (scene.folder / "store.db").unlink()
    scene.store = type(scene)(scene.source, scene.target, scene.folder).store


def create_and_copy_again(scene: Scenario) -> None:
    scene.target.delete(scene.topic)
    assert command(scene, "reset", "--topic", scene.topic, "--confirm", scene.topic)[0] == 0
    report = scene.run()
    assert report.outcome == "done", report.table()
    scene.assert_copied()


def test_a_position_that_was_set_back_doubles_nothing(scene: Scenario) -> None:
    scene.settings |= CHUNKS
    set_back(scene)
    line = only(scene.run())
    assert f"{scene.topic}-0" in (line.error or "") and "receipts say that [700, 1000) were copied" in (
        line.error or ""
    )
    assert f"re-create {scene.topic} and reset the topic" in line.remedy and scene.check().clean
    assert scene.position().next_offset == 700
    scene.assert_copied()
    create_and_copy_again(scene)
    assert scene.watermark() == 1000


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "a number that is no offset": ({"next_offset": 2**70}, "next_offset 1180591620717411303424"),
    "overlapping coverage": ({"coverage": [[0, 60], [40, 100]]}, "overlap"),
}


@pytest.mark.parametrize(("changes", "words"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_be_is_named_with_its_place(scene: Scenario, changes: dict[str, Any], words: str) -> None:
    copied_once(scene, 100)
    before = scene.position()
    put(scene, before, **changes)
    with pytest.raises(LedgerUnreadable) as caught:
        scene.run()
    assert (
        words in caught.value.what and f"{POSITIONS}-{scene.key().ledger_partition} on the target" in caught.value.what
    )
    assert "restore or delete the entry" in caught.value.remedy
    put(scene, before)
    scene.idle_run()
    scene.target.produce(POSITIONS, [Rec(scene.key().entry("position"), None)], scene.key().ledger_partition)
    assert f"empty {scene.topic} and reset the topic" in only(scene.run()).remedy
    create_and_copy_again(scene)


def test_coverage_beyond_the_next_offset(scene: Scenario) -> None:
    """The receipts are not asked: the entries alone show it."""
    copied_once(scene, 100)
    put(scene, scene.position(), next_offset=70)
    (row,) = standing(scene.bare_run())
    assert row.plan.state is State.CONTRADICTED and "next offset is 70" in row.plan.what
    assert only(scene.run()).error == row.plan.what
