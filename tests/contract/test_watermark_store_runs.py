"""What every watermark store must do with runs and the outcomes of their ranges."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_replication.ledger.entries import FailedRecord, Place
from kafka_replication.model.errors import BadInput, Busy, Refused
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.runtime.identity import ProcessIdentity
from kafka_replication.store.watermark_store import WatermarkStore
from kafka_replication.watermarks.failed import FailedRow, Step
from kafka_replication.watermarks.values import RangeOutcome
from tests.support.leases import acquire, exactly

NAME = "orders-dr"
KEY = PartitionKey(NAME, TopicPartition("orders", 3), "orders")
COPIED = RangeOutcome(
    run_id="run-1", key=KEY, range=OffsetRange(120, 2**62), copied=7, not_visible=3, seconds=1.25, bytes=2**40
)
VERIFIED = replace(COPIED, digest_ok=True, level="digest", watermark=2**62)


def test_a_repeated_start_returns_the_stored_plan(store: WatermarkStore) -> None:
    first = store.start_run("run-1", NAME, "live", '{"ranges": [[0, 10]]}')
    assert (first.state, first.finished_at) == ("planned", None)
    assert store.start_run("run-1", NAME, "live", '{"ranges": [[0, 99]]}') == first
    assert store.run("run-1") == first
    assert store.run("run-2") is None


def test_a_plan_is_replaced_only_by_who_names_it(store: WatermarkStore) -> None:
    store.start_run("run-1", NAME, "live", "old")
    assert store.start_run("run-1", NAME, "live", "new", instead_of="older").plan == "old"
    assert store.start_run("run-1", NAME, "live", "new", instead_of="old").plan == "new"
    assert store.start_run("run-1", NAME, "live", "newer", instead_of="old").plan == "new"
    assert [run.plan for run in store.runs(NAME)] == ["new"]


def test_a_run_whose_plan_is_replaced_is_planned_again(store: WatermarkStore) -> None:
    store.start_run("run-1", NAME, "live", "old")
    store.finish_run("run-1", "done")
    again = store.start_run("run-1", NAME, "live", "new", instead_of="old")
    assert (again.state, again.finished_at) == ("planned", None)
    assert store.run("run-1") == again


@pytest.mark.parametrize(("replication", "kind"), [("another", "live"), (NAME, "backfill")])
def test_a_run_id_of_something_else_is_refused(store: WatermarkStore, replication: str, kind: str) -> None:
    store.start_run("run-1", NAME, "live", "{}")
    with pytest.raises(
        Refused, match=f"run-1 belongs to a live run of orders-dr, not to a {kind} run of {replication}"
    ):
        store.start_run("run-1", replication, kind, "{}")


def test_a_finished_run_keeps_its_plan_and_can_finish_again(store: WatermarkStore) -> None:
    started = store.start_run("run-1", NAME, "live", "{}")
    failed = store.finish_run("run-1", "failed")
    assert failed.finished_at is not None
    assert failed == replace(started, state="failed", finished_at=failed.finished_at)
    assert failed.finished_at >= started.created_at
    assert store.start_run("run-1", NAME, "live", "other") == failed
    assert store.finish_run("run-1", "done").state == "done"


def test_the_newest_progress_of_a_run_stays(store: WatermarkStore) -> None:
    started = store.start_run("run-1", NAME, "live", "{}")
    store.start_run("run-2", NAME, "live", "{}")
    assert started.progress is None
    for text in ('{"ranges_done": 1}', '{"ranges_done": 2}', '{"ranges_done": 2}'):
        store.record_progress("run-1", text)
    assert store.run("run-1") == replace(started, progress='{"ranges_done": 2}')
    assert [run.progress for run in store.runs(NAME)] == [None, '{"ranges_done": 2}']
    assert store.finish_run("run-1", "done").progress == '{"ranges_done": 2}'


def test_progress_makes_no_run(store: WatermarkStore) -> None:
    store.record_progress("never started", "{}")
    assert store.run("never started") is None


def test_a_run_that_is_planned_again_has_no_progress(store: WatermarkStore) -> None:
    store.start_run("run-1", NAME, "live", "old")
    store.record_progress("run-1", "{}")
    again = store.start_run("run-1", NAME, "live", "new", instead_of="old")
    assert again.progress is None
    assert store.run("run-1") == again


def test_finishing_needs_a_known_run_and_state(store: WatermarkStore) -> None:
    with pytest.raises(BadInput, match="run-9 was never started"):
        store.finish_run("run-9", "done")
    store.start_run("run-1", NAME, "live", "{}")
    with pytest.raises(ValueError, match="planned, done, nothing_to_do, failed, died, sealed, not 'finished'"):
        store.finish_run("run-1", "finished")


def test_the_latest_runs_come_first(store: WatermarkStore) -> None:
    for number in range(4):
        store.start_run(f"run-{number}", NAME, "live", "{}")
    store.start_run("elsewhere", "another", "live", "{}")
    assert [run.run_id for run in store.runs(NAME, 3)] == ["run-3", "run-2", "run-1"]


def test_an_outcome_is_replaced_by_run_key_and_range(store: WatermarkStore) -> None:
    store.start_run("run-1", NAME, "live", "{}")
    failed = RangeOutcome(
        run_id="run-1",
        key=KEY,
        range=OffsetRange(0, 120),
        error="refused",
        remedy="raise max.message.bytes",
        digest_ok=False,
    )
    for outcome in (COPIED, failed, VERIFIED):
        store.record_outcomes([outcome])
    assert store.outcomes("run-1") == [failed, VERIFIED]
    assert all(each.recorded_at for each in store.outcomes("run-1"))
    assert store.outcomes("run-2") == []


def test_many_outcomes_are_recorded_at_once_or_none(store: WatermarkStore) -> None:
    store.start_run("run-1", NAME, "live", "{}")
    many = [replace(COPIED, range=OffsetRange(number, number + 1)) for number in range(1000)]
    store.record_outcomes(many)
    store.record_outcomes([replace(outcome, copied=9) for outcome in many[:10]])
    store.record_outcomes([])
    assert [outcome.copied for outcome in store.outcomes("run-1")] == [9] * 10 + [7] * 990
    with pytest.raises(BadInput):
        store.record_outcomes([VERIFIED, replace(VERIFIED, run_id="never started")])
    assert len(store.outcomes("run-1")) == 1000


@pytest.mark.parametrize("run_id", ["never started", "run of another"])
def test_an_outcome_needs_a_run_of_its_replication(store: WatermarkStore, run_id: str) -> None:
    store.start_run("run of another", "another", "live", "{}")
    with pytest.raises(BadInput, match=f"{run_id} was not started for orders-dr"):
        store.record_outcomes([replace(COPIED, run_id=run_id)])
    assert store.outcomes(run_id) == []


# Life


def test_a_planned_run_lives_while_an_attempt_of_it_has_a_lease(store: WatermarkStore) -> None:
    lease = acquire(store, NAME, "run-1", "try-1", 60, exactly("orders"))
    assert store.start_run("run-1", NAME, "live", "{}").alive
    assert [run.alive for run in store.runs(NAME)] == [True]
    assert not store.finish_run("run-1", "done").alive
    store.release_lease(lease)


def test_a_run_lives_while_its_next_task_is_expected(store: WatermarkStore) -> None:
    lease = acquire(store, NAME, "run-1", "plan", 60, exactly("orders"))
    store.start_run("run-1", NAME, "live", "{}")
    store.hand_over_lease(lease, 0.001, 60)
    acquire(store, NAME, "run-2", "plan", 60, exactly("orders"))
    run = store.run("run-1")
    assert run is not None and (run.state, run.alive) == ("planned", True)


def test_the_next_run_closes_a_run_that_died(store: WatermarkStore) -> None:
    lease = acquire(store, NAME, "run-1", "plan", 60, exactly("orders"))
    started = store.start_run("run-1", NAME, "live", "{}")
    store.start_run("elsewhere", "another", "live", "{}")
    store.release_lease(lease)  # and it never finished
    assert store.run("run-1") == replace(started, alive=False)
    acquire(store, NAME, "run-2", "plan", 60, exactly("audit"))
    died = store.run("run-1")
    assert died is not None and died.finished_at is not None
    assert died == replace(started, state="died", alive=False, finished_at=died.finished_at)
    others = store.run("elsewhere")
    assert others is not None and others.state == "planned"


def test_a_run_that_was_taken_for_dead_is_planned_again_by_its_next_attempt(store: WatermarkStore) -> None:
    store.release_lease(acquire(store, NAME, "run-1", "try-1", 60, exactly("orders")))
    store.start_run("run-1", NAME, "live", "{}")
    store.release_lease(acquire(store, NAME, "run-2", "try-1", 60, exactly("orders")))
    died = store.run("run-1")
    assert died is not None and died.state == "died"
    acquire(store, NAME, "run-1", "try-2", 60, exactly("orders"))
    again = store.run("run-1")
    assert again is not None and (again.state, again.alive, again.finished_at) == ("planned", True, None)


def test_the_lease_of_a_process_that_is_gone_counts_no_more(store: WatermarkStore) -> None:
    """Nobody waits for its hour; a process of which nothing is known from here has the hour."""
    gone, unknown = replace(ProcessIdentity.own(), started=-60.0), replace(ProcessIdentity.own(), host="elsewhere")
    acquire(store, NAME, "killed", "try-1", 3600, exactly("orders"), gone)
    store.start_run("killed", NAME, "live", "{}")
    acquire(store, NAME, "far", "try-1", 3600, exactly("audit"), unknown)
    assert [lease.owner for lease in store.leases(NAME)] == ["far"]
    acquire(store, NAME, "next", "try-1", 3600, exactly("orders"))
    with pytest.raises(Busy, match="far"):
        acquire(store, NAME, "other", "try-1", 3600, exactly("audit"))
    assert [run.state for run in store.runs(NAME)] == ["died"]


def failed(offset: int, *steps: Step) -> FailedRow:
    record = FailedRecord(
        offset=offset,
        kind="refused",
        reason="no key",
        error="INVALID_RECORD",
        size=7,
        key_digest="",
        digest="d",
        place=Place("quarantine", 3, offset),
    )
    return FailedRow(key=KEY, generation=1, record=record, history=steps)


def test_failed_records_are_kept_once_and_their_history_grows(store: WatermarkStore) -> None:
    """In any order, and however often the same is told."""
    first, then = (
        Step("2030-01-31T06:00:00.000Z", "quarantined", "run-1"),
        Step("2030-02-01T06:00:00.000Z", "retried", "run-2", by="ann"),
    )
    store.record_failed([failed(offset, first) for offset in range(250)])
    store.record_failed([failed(7, first, then), failed(300, first)])
    store.record_failed([failed(7, first)])
    rows = {row.record.offset: row for row in store.failed(KEY.replication)}
    assert list(rows) == [*range(250), 300]
    assert (rows[7], rows[8]) == (failed(7, first, then), failed(8, first))
    assert store.failed("another") == []
