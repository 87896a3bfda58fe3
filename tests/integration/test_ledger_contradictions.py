"""A ledger that somebody changed is noticed before a record is copied, and repaired from its receipts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.planning.plan import State
from kafka_replication.runs.report.partition_status import standing
from tests.support.actions import copied_once, put
from tests.support.command_line import at_a_terminal, command
from tests.support.scenario import Scenario, numbered, only

CHUNKS: dict[str, Any] = {"copy": {"chunk_records": 100}}


def set_back(scene: Scenario) -> None:
    """Position and verified coverage of 700, although 1,000 were copied; and the store is lost."""
    copied_once(scene, 1000)
    view = scene.bare_run().view()
    put(scene, view.positions[scene.key()], next_offset=700, coverage=[[0, 700]])
    put(scene, view.verified[scene.key()], coverage=[[0, 700]])
    (scene.folder / "store.db").unlink()
    scene.store = type(scene)(scene.source, scene.target, scene.folder).store


def test_a_position_that_was_set_back_doubles_nothing_and_is_repaired(scene: Scenario) -> None:
    scene.settings |= CHUNKS
    set_back(scene)
    line = only(scene.run())
    assert f"{scene.topic}-0" in (line.error or "") and "receipts say that [700, 1000) were copied" in (
        line.error or ""
    )
    assert "--repair" in line.remedy and scene.check().clean
    code, out, _ = command(scene, "ledger", "--repair")
    assert code == 1 and "receipts prove:    next 1000, on the target [0, 1000)" in out
    code, out, shown = at_a_terminal(scene, "n", "ledger", "--repair")
    assert code == 1 and "write these positions? [y/N]" in shown and "nothing was changed" in out
    assert scene.position().next_offset == 700
    code, out, _ = at_a_terminal(scene, "y", "ledger", "--repair", "--json")
    document = json.loads(out)
    assert code == 0 and document["written"] and document["partitions"][0]["after"]["next_offset"] == 1000
    scene.source.produce(scene.topic, numbered(10, 1000))
    assert scene.run().outcome == "done"
    assert scene.watermark() == 1010
    scene.assert_copied()
    assert command(scene, "ledger", "--repair", "--yes")[0] == 0


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "a number that is no offset": ({"next_offset": 2**70}, "next_offset 1180591620717411303424"),
    "overlapping coverage": ({"coverage": [[0, 60], [40, 100]]}, "overlap"),
}


@pytest.mark.parametrize(("changes", "words"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_be_is_named_with_its_place(scene: Scenario, changes: dict[str, Any], words: str) -> None:
    copied_once(scene, 100)
    put(scene, scene.position(), **changes)
    with pytest.raises(LedgerUnreadable) as caught:
        scene.run()
    assert (
        words in caught.value.what and f"{POSITIONS}-{scene.key().ledger_partition} on the target" in caught.value.what
    )
    assert command(scene, "ledger", "--repair", "--yes")[0] == 0
    scene.idle_run()
    assert (scene.position().next_offset, str(scene.position().coverage)) == (100, "[0, 100)")


def test_coverage_beyond_the_next_offset(scene: Scenario) -> None:
    """The receipts are not asked: the entries alone show it."""
    copied_once(scene, 100)
    put(scene, scene.position(), next_offset=70)
    (row,) = standing(scene.bare_run())
    assert row.plan.state is State.CONTRADICTED and "next offset is 70" in row.plan.what
    assert only(scene.run()).error == row.plan.what
