"""What every watermark store must delete, and what it must keep whatever its age."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import NullPool, create_engine, text

from kafka_replication.ledger.entries import FailedRecord
from kafka_replication.model.choices import STATES
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.times import now
from kafka_replication.store import runs
from kafka_replication.store.watermark_store import WatermarkStore
from kafka_replication.watermarks.failed import DISCARDED, OPEN, QUARANTINED, RETRIED, SKIPPED, FailedRow, Step
from kafka_replication.watermarks.values import RangeOutcome
from tests.support import watermarks

NAME = "orders-dr"
KEY = PartitionKey(NAME, TopicPartition("orders", 3), "orders")
DAY = 86_400
TIMES = {
    "runs": ("created_at", "finished_at"),
    "watermarks": ("updated_at",),
    "range_outcomes": ("recorded_at",),
    "failed_records": ("updated_at",),
}
Pass = Callable[[float], None]


@pytest.fixture
def time_passes(store_url: str) -> Pass:
    """Make everything in the store so many seconds older."""

    def older(seconds: float) -> None:
        engine = create_engine(store_url, poolclass=NullPool)
        with engine.begin() as db:
            for table, columns in TIMES.items():
                changes = ", ".join(f"{name} = {name} - {round(seconds * 1000)}" for name in columns)
                db.execute(text(f"UPDATE kafka_replication_{table} SET {changes}"))
        engine.dispose()

    return older


def ended(store: WatermarkStore, run_id: str, state: str = "done", replication: str = NAME) -> None:
    store.start_run(run_id, replication, "live", f"plan of {run_id}")
    key = PartitionKey(replication, KEY.source, KEY.target_topic)
    store.record_outcomes([RangeOutcome(run_id=run_id, key=key, range=OffsetRange(0, 9))])
    if state != "planned":
        store.finish_run(run_id, state)


def note(store: WatermarkStore, offset: int, *states: str, replication: str = NAME) -> None:
    key = PartitionKey(replication, KEY.source, KEY.target_topic)
    record = FailedRecord(offset=offset, kind="refused", reason="", error="", size=1, key_digest="", digest="")
    history = tuple(Step(now(), state, state) for state in states)
    store.record_failed([FailedRow(key=key, generation=1, record=record, history=history)])


def test_runs_go_with_their_outcomes_once_they_are_old(store: WatermarkStore, time_passes: Pass) -> None:
    for state in ("done", "failed", "planned"):
        ended(store, f"old-{state}", state)
    ended(store, "elsewhere", "done", "another")
    time_passes(2 * DAY)
    for state in ("done", "failed", "planned"):
        ended(store, f"new-{state}", state)
    assert store.prune(NAME, 3 * DAY) == 0
    assert store.prune(NAME, DAY) == 6, "three runs and an outcome of each"
    assert [run.run_id for run in store.runs(NAME)] == ["new-planned", "new-failed", "new-done"]
    assert [len(store.outcomes(f"{age}-failed")) for age in ("old", "new")] == [0, 1]
    assert len(store.outcomes("elsewhere")) == 1
    assert store.prune(NAME, DAY) == 0


def test_a_run_that_was_planned_long_ago_and_ended_lately_is_kept(store: WatermarkStore, time_passes: Pass) -> None:
    ended(store, "repeated", "planned")
    time_passes(2 * DAY)
    store.finish_run("repeated", "done")
    assert store.prune(NAME, DAY) == 0
    assert store.run("repeated") is not None


def test_the_plan_of_a_run_that_succeeded_is_dropped_after_an_hour(store: WatermarkStore, time_passes: Pass) -> None:
    states = ("done", "nothing_to_do", "failed", "planned")
    for state in states:
        ended(store, state, state)
    store.prune(NAME, DAY)
    assert [run.plan for run in store.runs(NAME)] == [f"plan of {state}" for state in reversed(states)]
    time_passes(3700)
    store.prune(NAME, DAY)
    plans = {run.run_id: run.plan for run in store.runs(NAME)}
    assert plans == {"done": "", "nothing_to_do": "", "failed": "plan of failed", "planned": "plan of planned"}
    assert store.start_run("done", NAME, "live", "planned again", instead_of="").plan == "planned again"


def test_an_old_watermark_stays(store: WatermarkStore, time_passes: Pass) -> None:
    idle = PartitionKey(NAME, TopicPartition("idle", 0), "idle")
    for key in (KEY, idle):
        watermarks.advance(store, key, 10, None)
        watermarks.advance(store, key, 20, 1)
    before = store.watermarks(NAME)
    time_passes(2 * DAY)
    watermarks.advance(store, KEY, 30, 2)
    assert store.prune(NAME, DAY) == 0
    assert store.watermarks(NAME)[idle].version == before[idle].version
    assert watermarks.advance(store, idle, 40, 2).version == 3


def test_failed_records_go_when_they_were_decided_about_long_ago_and_open_ones_never(
    store: WatermarkStore, time_passes: Pass
) -> None:
    for offset, state in enumerate(STATES):
        note(store, offset, *dict.fromkeys((QUARANTINED, state)))
    note(store, 9, QUARANTINED, DISCARDED, replication="another")
    time_passes(2 * DAY)
    note(store, 7, QUARANTINED, RETRIED)
    assert store.prune(NAME, 3 * DAY) == 0
    assert store.prune(NAME, DAY) == len(STATES) - len(OPEN)
    assert [(row.offset, row.state) for row in store.failed(NAME)] == [(0, QUARANTINED), (1, SKIPPED), (7, RETRIED)]
    assert len(store.failed("another")) == 1


def test_a_backlog_is_deleted_in_bounded_steps(
    store: WatermarkStore, time_passes: Pass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "RUNS_AT_ONCE", 2)
    monkeypatch.setattr(runs, "RECORDS_AT_ONCE", 3)
    monkeypatch.setattr(runs, "BATCHES", 2)
    for number in range(10):
        ended(store, f"run-{number}")
        note(store, number, QUARANTINED, RETRIED)
    time_passes(2 * DAY)
    assert [store.prune(NAME, DAY) for _ in range(4)] == [14, 12, 4, 0]
