"""How a run stands, for a person and for a script."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kafka_replication.documents import as_json
from kafka_replication.reporting.progress import RecentRunRow
from kafka_replication.watermarks.values import RunRecord

SIX = datetime(2030, 1, 31, 6, tzinfo=UTC)


def record(state: str, *, alive: bool, finished_at: datetime | None = None) -> RunRecord:
    return RunRecord(
        run_id="run-1",
        replication="orders-dr",
        kind="live",
        state=state,
        plan="{}",
        created_at=SIX,
        finished_at=finished_at,
        alive=alive,
    )


@pytest.mark.parametrize(
    ("state", "alive", "at_work", "shown"),
    [
        ("planned", True, True, "running"),
        ("planned", True, False, "expected"),
        ("planned", False, False, "died"),
        ("died", False, False, "died"),
        ("done", False, False, "done"),
        ("failed", False, True, "failed"),
    ],
)
def test_the_state_of_a_run(state: str, alive: bool, at_work: bool, shown: str) -> None:
    standing = RecentRunRow.of(record(state, alive=alive), at_work=at_work)
    assert standing.state == shown
    assert ("the next run continues" in str(standing)) == (shown == "died")


def test_the_json_of_a_run_is_the_documented_one() -> None:
    assert as_json(RecentRunRow.of(record("failed", alive=False, finished_at=SIX), at_work=False)) == {
        "run_id": "run-1",
        "kind": "live",
        "state": "failed",
        "planned_at": "2030-01-31T06:00:00Z",
        "ended_at": "2030-01-31T06:00:00Z",
    }
