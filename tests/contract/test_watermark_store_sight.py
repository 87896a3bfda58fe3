"""What every watermark store keeps for a page: the newest look, samples over time, the alerts that are over."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

import pytest
from sqlalchemy import Engine, NullPool, create_engine, event, text

from kafka_replication.alerting.open_causes import Cause, CauseKey, Kind, Observation, decide
from kafka_replication.documents import GapRow, StatusRow, adapter, as_json
from kafka_replication.ledger.entries import FailedRecord
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.times import now
from kafka_replication.store.sight import ROWS as ROWS_VERSION
from kafka_replication.store.watermark_store import WatermarkStore
from kafka_replication.watermarks.failed import DISCARDED, QUARANTINED, FailedRow, Step
from kafka_replication.watermarks.sight import Facts, Lag, Sample, Seen, Span, Total, Work, begin_of
from kafka_replication.watermarks.values import RangeOutcome
from tests.support import watermarks
from tests.support.leases import acquire
from tests.support.status_rows import status_row

NAME, OTHER = "orders-dr", "payments-dr"
KEY = PartitionKey(NAME, TopicPartition("orders", 3), "dr.orders")
FACTS = Facts(source="kafka_a", target="kafka_b", schedule="*/5 * * * *", topics=("orders",))
ROWS = [status_row(partition=3, lag=7)]
Aged = Callable[[timedelta], None]
DAY = timedelta(days=1)
ERRORS = [(0, None), (1, "it is refused"), (2, None)]


@pytest.fixture
def aged(store_url: str) -> Aged:
    """Make all samples and past alerts older."""

    def older(by: timedelta) -> None:
        millis = by // timedelta(milliseconds=1)
        engine = create_engine(store_url, poolclass=NullPool)
        with engine.begin() as db:
            db.execute(text(f"UPDATE kafka_replication_samples SET at = at - {millis}"))
            db.execute(text(f"UPDATE kafka_replication_past_alerts SET ended_at = ended_at - {millis}"))
        engine.dispose()

    return older


def seen(store: WatermarkStore, name: str = NAME) -> Seen:
    [only] = store.front([name])
    return only


def samples(store: WatermarkStore, since: timedelta = 40_000 * DAY) -> list[Sample]:
    return store.samples(NAME, datetime.now(UTC) - since)


def run(store: WatermarkStore, run_id: str, state: str = "done", kind: str = "live") -> None:
    store.start_run(run_id, NAME, kind, f"plan of {run_id}")
    if state != "planned":
        store.finish_run(run_id, state)


def work(run_id: str, records: int, at: datetime | None = None) -> Work:
    return Work(run_id=run_id, records=records, bytes=10 * records, seconds=2.0, at=at or datetime.now(UTC))


def test_an_empty_store_has_nothing_to_show(store: WatermarkStore) -> None:
    assert store.front() == []
    assert store.standing_partitions(NAME) == []
    assert samples(store) == [] == store.runs_before(NAME, None, 5)
    assert store.copied_ranges(KEY, 5) == [] == store.past_alerts(NAME, 5)


def test_the_newest_look_replaces_the_one_before(store: WatermarkStore) -> None:
    store.record_standing(NAME, FACTS, Lag(None, None), [])
    store.record_standing(NAME, FACTS, Lag(7, 3.5), ROWS)
    standing = seen(store).standing
    assert (standing.facts, standing.lag, standing.partitions, standing.work) == (FACTS, Lag(7, 3.5), 1, None)
    assert standing.at is not None
    assert abs(standing.at - datetime.now(UTC)) < timedelta(hours=1)
    assert store.standing_partitions(NAME) == ROWS
    assert store.front([OTHER]) == []


def test_rows_of_another_version_are_not_seen_yet(store: WatermarkStore, store_url: str) -> None:
    engine = create_engine(store_url, poolclass=NullPool)
    rows = [as_json(row) for row in ROWS]
    for other in (json.dumps(rows), json.dumps({"version": 0, "rows": rows}), "{}"):
        store.record_standing(NAME, FACTS, Lag(7, 3.5), ROWS)
        with engine.begin() as db:
            db.execute(text("UPDATE kafka_replication_standings SET partitions = :other"), {"other": other})
        assert store.standing_partitions(NAME) == []
        store.record_standing(NAME, FACTS, Lag(7, 3.5), ROWS)
        assert store.standing_partitions(NAME) == ROWS
    engine.dispose()


def test_who_changes_the_rows_of_status_raises_the_version_of_the_stored_ones() -> None:
    schemas = (adapter(row).json_schema(mode="serialization") for row in (StatusRow, GapRow))
    keys = " ".join(name for schema in schemas for name in sorted(schema["properties"]))
    assert (ROWS_VERSION, crc32(keys.encode())) == (3, 3994124892)


@contextmanager
def statements() -> Iterator[list[str]]:
    """What is sent to a database meanwhile."""
    sent = list[str]()

    def keep(db: object, cursor: object, statement: str, *others: object) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", keep)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", keep)


def test_more_runs_are_not_more_questions(store: WatermarkStore) -> None:
    counts = list[int]()
    for number in range(3):
        store.start_run(f"run-{number}", f"{NAME}-{number}", "live", "its plan")
        store.start_run(f"again-{number}", NAME, "live", "its plan")
        with statements() as sent:
            assert len(store.front()) == number + 2
            assert len(store.runs_before(NAME, None, 9)) == number + 1
        counts.append(len(sent))
    assert len(set(counts)) == 1, counts


def test_rows_that_have_not_changed_are_not_written_again(store: WatermarkStore) -> None:
    for rows, written in ((ROWS, True), (ROWS, False), ([], True), ([], False)):
        with statements() as sent:
            store.record_standing(NAME, FACTS, Lag(0, 0.0), rows)
        [put] = [one for one in sent if one.startswith("INSERT INTO kafka_replication_standings")]
        assert ("partitions" in put.replace("partition_count", "")) == written
        assert store.standing_partitions(NAME) == rows


def test_sums_only_grow_and_outlive_the_runs(store: WatermarkStore, aged: Aged) -> None:
    assert store.totals() == {}
    for run_id, mark in (("run-1", 0.1), ("run-2", 0.1), ("run-1", 0.1)):  # the last call repeats the first one
        store.add_totals(NAME, {Total("records"): 5.0, Total("throttled_seconds"): 0.25}, run_id, mark)
    store.add_totals(OTHER, {Total("records"): 1.0}, "run-3", 0.1)
    outcomes = [RangeOutcome(run_id="run-1", key=KEY, range=OffsetRange(at, at + 1), error=why) for at, why in ERRORS]
    store.start_run("run-1", NAME, "live", "its plan")
    for state in ("failed", "failed", "done"):  # the same end is counted once, and so is a range that is verified
        store.record_outcomes(outcomes)
        store.finish_run("run-1", state)
        outcomes = [replace(outcome, error=None) for outcome in outcomes]
    run(store, "run-2", "nothing_to_do", "backfill")
    assert store.totals() == {
        NAME: {
            Total("records"): 10.0,
            Total("throttled_seconds"): 0.5,
            Total("runs", "live", "failed"): 1.0,
            Total("runs", "live", "done"): 1.0,
            Total("runs", "backfill", "nothing_to_do"): 1.0,
            Total("ranges", outcome="failed"): 1.0,
            Total("ranges", outcome="verified"): 3.0,
        },
        OTHER: {Total("records"): 1.0},
    }
    store.prune(NAME, 0)
    assert store.totals()[NAME][Total("runs", "live", "done")] == 1.0


def test_a_run_that_died_is_counted_when_that_is_noticed(store: WatermarkStore) -> None:
    for run_id, kind in (("run-1", "live"), ("run-2", "live"), ("run-3", "backfill")):
        run(store, run_id, "planned", kind)
    store.record_outcomes([RangeOutcome(run_id="run-1", key=KEY, range=OffsetRange(0, 5))])
    store.release_lease(acquire(store, NAME, "run-4", "plan", 60))
    counted = {
        Total("runs", "live", "died"): 2.0,
        Total("runs", "backfill", "died"): 1.0,
        Total("ranges", outcome="verified"): 1.0,
    }
    assert store.totals()[NAME] == counted
    acquire(store, NAME, "run-1", "replicate", 60)  # it goes on
    store.finish_run("run-1", "done")
    assert store.totals()[NAME] == {**counted, Total("runs", "live", "done"): 1.0}


def test_a_replication_is_seen_as_soon_as_a_run_has_begun_or_somebody_has_looked(store: WatermarkStore) -> None:
    store.release_lease(acquire(store, NAME, "run-1", "plan", 60))
    store.record_look(OTHER, True)
    assert [(one.standing.replication, one.standing.facts) for one in store.front()] == [(NAME, None), (OTHER, None)]
    store.record_facts(NAME, FACTS)
    assert (seen(store).standing.facts, seen(store).standing.at) == (FACTS, None)
    store.record_standing(NAME, FACTS, Lag(7, 3.5), ROWS)
    store.record_facts(NAME, FACTS)
    assert seen(store).standing.lag == Lag(7, 3.5)


def test_what_a_run_copied_and_a_look_do_not_replace_each_other(store: WatermarkStore) -> None:
    done = work("run-1", 5)
    store.record_work(NAME, FACTS, done)
    store.record_standing(NAME, FACTS, Lag(7, 3.5), ROWS)
    store.record_work(NAME, FACTS, work("run-2", 0))
    standing = seen(store).standing
    assert (standing.lag.records, standing.partitions) == (7, 1)
    assert standing.work is not None
    assert (standing.work.run_id, standing.work.bytes_per_second) == ("run-1", 25.0)


def test_a_minute_has_its_largest_lag_and_all_that_was_copied(store: WatermarkStore) -> None:
    at = begin_of(datetime.now(UTC), Span.MINUTE)
    for lag in (Lag(3, 9.0), Lag(8, 1.0), Lag(None, None)):
        store.record_standing(NAME, FACTS, lag, ROWS)
    for run_id in ("run-1", "run-2", "run-1"):
        store.record_work(NAME, FACTS, work(run_id, 5, at))
    found = samples(store)
    assert sum(sample.records for sample in found) == 10  # a run that is reported again counts once
    assert max(sample.lag.records or 0 for sample in found) == 8
    assert max(sample.lag.seconds or 0 for sample in found) == 9.0
    assert {sample.span for sample in found} == {Span.MINUTE}


def test_samples_are_thinned_as_they_age_and_lose_nothing_of_what_was_copied(store: WatermarkStore, aged: Aged) -> None:
    for number in range(6):
        store.record_standing(NAME, FACTS, Lag(10 + number, 1.0), ROWS)
        store.record_work(NAME, FACTS, work(f"run-{number}", 5))
        aged(timedelta(minutes=25))
    aged(2 * DAY)
    store.record_standing(NAME, FACTS, Lag(0, 0.0), ROWS)
    hours = [sample for sample in samples(store) if sample.span is Span.HOUR]
    assert sum(sample.records for sample in hours) == 30
    assert max(sample.lag.records or 0 for sample in hours) == 15
    assert 2 <= len(hours) <= 4
    assert sum(sample.span is Span.MINUTE for sample in samples(store)) == 1
    aged(40 * DAY)
    store.record_work(NAME, FACTS, work("run-9", 1))
    assert sum(sample.records for sample in samples(store) if sample.span is Span.DAY) == 30
    assert not any(sample.span is Span.HOUR and sample.records for sample in samples(store))
    store.prune(NAME, 20 * 86_400)
    assert sum(sample.records for sample in samples(store)) == 1


def test_a_run_that_is_reported_again_after_days_is_not_counted_twice(store: WatermarkStore, aged: Aged) -> None:
    long_ago = datetime.now(UTC) - 2 * DAY
    store.record_work(NAME, FACTS, work("run-1", 5))
    aged(2 * DAY)
    store.record_standing(NAME, FACTS, Lag(0, 0.0), ROWS)
    store.record_work(NAME, FACTS, work("run-1", 5, long_ago))
    assert sum(sample.records for sample in samples(store)) == 5


def test_only_samples_since_a_moment(store: WatermarkStore, aged: Aged) -> None:
    store.record_standing(NAME, FACTS, Lag(1, 1.0), ROWS)
    aged(timedelta(hours=2))
    store.record_standing(NAME, FACTS, Lag(2, 1.0), ROWS)
    assert [sample.lag.records for sample in samples(store, timedelta(hours=1))] == [2]
    assert [sample.lag.records for sample in samples(store)] == [1, 2]


def test_the_front_has_runs_watermarks_and_failed_records(store: WatermarkStore) -> None:
    run(store, "run-1")
    run(store, "run-2", "planned")
    acquire(store, NAME, "run-2", "copy", 60)
    store.record_progress("run-2", '{"half": "done"}')
    run(store, "run-3", "failed", kind="backfill")
    watermarks.advance(store, KEY, 5, None)
    found = seen(store)
    assert found.last_verified is not None
    assert found.newest is not None
    assert (found.newest.run_id, found.newest.kind, found.newest.state) == ("run-3", "backfill", "failed")
    [at_work] = found.at_work
    assert (at_work.run_id, at_work.progress, at_work.alive, at_work.plan) == ("run-2", '{"half": "done"}', True, "")


def failed(offset: int, *states: str) -> FailedRow:
    record = FailedRecord(
        offset=offset, kind="too_large", reason="it is too large", error="KR-1", size=1, key_digest="", digest="ab"
    )
    return FailedRow(
        key=KEY, generation=1, record=record, history=tuple(Step(now(), state, "run-1") for state in states)
    )


def test_only_failed_records_without_a_decision_are_counted(store: WatermarkStore) -> None:
    run(store, "run-1")
    store.record_failed([failed(1, QUARANTINED), failed(2, QUARANTINED), failed(3, QUARANTINED, DISCARDED)])
    assert seen(store).undecided == 2


def test_runs_come_page_by_page(store: WatermarkStore) -> None:
    for number in range(5):
        run(store, f"run-{number}", "planned" if number == 4 else "done")
    first = store.runs_before(NAME, None, 2)
    assert [record.run_id for _, record in first] == ["run-4", "run-3"]
    assert [record.alive for _, record in first] == [False, False]
    rest = store.runs_before(NAME, first[-1][0], 10)
    assert [record.run_id for _, record in rest] == ["run-2", "run-1", "run-0"]


def test_the_ranges_of_one_partition_with_the_kind_of_their_run(store: WatermarkStore) -> None:
    run(store, "run-1")
    run(store, "run-2", kind="backfill")
    other = PartitionKey(NAME, TopicPartition("orders", 4), "dr.orders")
    store.record_outcomes([RangeOutcome(run_id="run-1", key=key, range=OffsetRange(0, 9)) for key in (KEY, other)])
    store.record_outcomes([RangeOutcome(run_id="run-2", key=KEY, range=OffsetRange(2, 4), error="no")])
    found = {(each.kind, each.outcome.range, each.outcome.error) for each in store.copied_ranges(KEY, 9)}
    assert found == {("live", OffsetRange(0, 9), None), ("backfill", OffsetRange(2, 4), "no")}


def observe(store: WatermarkStore, *causes: Cause) -> None:
    store.update_causes(NAME, lambda open_, now: decide(open_, Observation(causes=causes), now))


def test_an_alert_that_is_over_is_remembered_until_it_is_old(store: WatermarkStore, aged: Aged) -> None:
    values: dict[str, Any] = {"what": "it is far behind", "remedy": "give it more slots"}
    told = Cause(key=CauseKey(Kind.LAG, "orders"), **values)
    untold = Cause(key=CauseKey(Kind.QUARANTINED, "orders"), **values, patience=3600)
    observe(store, told, untold)
    store.record_look(NAME, paused=True)
    run(store, "run-1")
    assert {cause.key.kind for cause in seen(store).causes} == {Kind.LAG, Kind.QUARANTINED}
    look = seen(store).look
    assert look is not None
    assert look.paused
    assert store.past_alerts(NAME, 9) == []
    observe(store)
    [past] = store.past_alerts(NAME, 9)  # nobody was told of the other one
    assert (past.kind, past.subject, past.what, past.remedy) == ("lag", "orders", *values.values())
    assert past.ended_at >= past.since
    assert seen(store).causes == ()
    aged(2 * DAY)
    store.prune(NAME, 86_400)
    assert store.past_alerts(NAME, 9) == []
