"""The state of a replication in one word, from what the store knows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kafka_replication.alerting.open_causes import Cause, CauseKey, Kind, OpenCause
from kafka_replication.overview.rows import OLD, Row, State, in_order, is_old, row_of
from kafka_replication.reporting.progress import state_of
from kafka_replication.watermarks.sight import Facts, Lag, Look, Sample, Seen, Span, Standing, thinned
from kafka_replication.watermarks.values import RunRecord

NOW = datetime(2026, 5, 4, 10, 2, tzinfo=UTC)
FACTS = Facts(source="kafka_a", target="kafka_b", schedule="*/15 * * * *", topics=("orders", "^audit.*"))
STANDING = Standing(replication="orders-dr", facts=FACTS, at=NOW, partitions=3, lag=Lag(0, 0.0))
SEEN = Seen(standing=STANDING)


def run(state: str = "done", **changes: Any) -> RunRecord:
    values = {"run_id": "run-1", "replication": "orders-dr", "kind": "live", "plan": "", "created_at": NOW, **changes}
    return RunRecord(state=state, **values)


def cause(kind: Kind, told: datetime | None = NOW, over: datetime | None = None) -> OpenCause:
    what = Cause(key=CauseKey(kind), what=f"what of {kind}", remedy=f"remedy of {kind}")
    return OpenCause(cause=what, since=NOW, at=NOW, last_seen=NOW, announced_at=told, over_at=over)


BEHIND = replace(STANDING, lag=Lag(5, 60.0))


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (SEEN, State.IN_SYNC),
        (replace(SEEN, standing=BEHIND), State.BEHIND),
        (replace(SEEN, standing=BEHIND, look=Look(NOW, paused=True)), State.PAUSED),
        (replace(SEEN, at_work=(run("planned", alive=True),)), State.RUNNING),
        (Seen(standing=Standing(replication="orders-dr")), State.UNSEEN),
        (replace(SEEN, standing=replace(STANDING, at=NOW - OLD - timedelta(seconds=1))), State.UNSEEN),
        (replace(SEEN, standing=replace(STANDING, lag=Lag(None, None))), State.UNSEEN),
        (replace(SEEN, newest=run("failed")), State.FAILING),
        (replace(SEEN, newest=run("died")), State.FAILING),
        (replace(SEEN, newest=run("planned")), State.FAILING),
        (replace(SEEN, newest=run("planned", alive=True)), State.IN_SYNC),
        (replace(SEEN, newest=run("failed", kind="backfill")), State.IN_SYNC),
        (replace(SEEN, newest=run("sealed")), State.SEALED),
        (replace(SEEN, newest=run("sealed"), standing=replace(STANDING, lag=Lag(None, None))), State.SEALED),
        (replace(SEEN, newest=run("sealed"), causes=(cause(Kind.CLUSTER),)), State.FAILING),
        (replace(SEEN, causes=(cause(Kind.QUARANTINED),)), State.WAITING),
        (replace(SEEN, causes=(cause(Kind.LAG), cause(Kind.QUARANTINED))), State.LATE),
        (replace(SEEN, causes=(cause(Kind.LAG), cause(Kind.GAP))), State.FAILING),
        (replace(SEEN, causes=(cause(Kind.GAP, told=None),)), State.IN_SYNC),
        (replace(SEEN, causes=(cause(Kind.GAP, over=NOW),)), State.IN_SYNC),
    ],
)
def test_the_state(seen: Seen, state: State) -> None:
    assert row_of(seen, NOW).state is state


def test_the_worst_alert_is_the_one_that_is_shown() -> None:
    row = row_of(replace(SEEN, causes=(cause(Kind.LAG), cause(Kind.GAP))), NOW)
    assert (row.what, row.remedy, row.since) == ("what of gap", "remedy of gap", NOW)
    assert [each.key.kind for each in row.causes] == [Kind.GAP, Kind.LAG]


@pytest.mark.parametrize(
    ("seen", "what", "remedy", "since"),
    [
        (replace(SEEN, newest=run("failed", finished_at=NOW)), "run run-1 failed", "run again", NOW),
        (replace(SEEN, newest=run("planned")), "run run-1 died", "the log", NOW),
        (Seen(standing=Standing(replication="orders-dr")), "has not checked it yet", "replications.watch", None),
        (
            replace(SEEN, standing=replace(STANDING, at=NOW - 2 * OLD)),
            "ten minutes",
            "replications.watch",
            NOW - 2 * OLD,
        ),
        (replace(SEEN, standing=replace(STANDING, lag=Lag())), "lag is not known", "kafka-replication check", NOW),
    ],
)
def test_what_needs_a_person_without_an_alert_says_why_and_what_to_do(
    seen: Seen, what: str, remedy: str, since: datetime | None
) -> None:
    row = row_of(seen, NOW)
    assert row.state.needs_person
    assert what in row.what and remedy in row.remedy
    assert row.since == since


def test_the_next_run_is_the_next_moment_of_the_schedule() -> None:
    assert row_of(SEEN, NOW).next_run == datetime(2026, 5, 4, 10, 15, tzinfo=UTC)
    assert row_of(replace(SEEN, look=Look(NOW, paused=True)), NOW).next_run is None
    by_hand = replace(STANDING, facts=replace(FACTS, schedule=None))
    assert row_of(replace(SEEN, standing=by_hand), NOW).next_run is None


def test_what_needs_a_person_comes_first() -> None:
    def row(name: str, state: State, seconds: float = 0.0) -> Row:
        return Row(replication=name, state=state, lag=Lag(1, seconds))

    found = [row(state.value, state) for state in reversed(State)] + [row("far", State.BEHIND, 9), row("b", State.LATE)]
    names = [each.replication for each in in_order(found)]
    assert names == [
        "failing",
        "b",
        "late",
        "waiting",
        "unseen",
        "running",
        "sealed",
        "far",
        "behind",
        "paused",
        "in sync",
    ]
    assert [state.needs_person for state in State] == [True] * 4 + [False] * 5


def test_a_search_finds_every_word_anywhere() -> None:
    row = row_of(SEEN, NOW)
    for words in ("", "ORDERS", "kafka_b sync", "audit orders-dr"):
        assert row.is_found_by(words), words
    assert not row.is_found_by("orders failing")


@pytest.mark.parametrize(
    ("record", "at_work", "state"),
    [
        (run("failed"), False, "failed"),
        (run("planned", alive=True), True, "running"),
        (run("planned", alive=True), False, "expected"),
        (run("planned"), False, "died"),
    ],
)
def test_the_state_of_a_run(record: RunRecord, at_work: bool, state: str) -> None:
    assert state_of(record, at_work=at_work) == state


def test_a_number_is_old_once_it_should_have_been_renewed() -> None:
    assert is_old(None, NOW)
    assert not is_old(NOW - OLD, NOW)
    assert is_old(NOW - OLD - timedelta(milliseconds=1), NOW)


def test_a_progress_of_another_version_is_no_progress() -> None:
    at_work = run("planned", alive=True, progress='{"of": "another version"}')
    [running] = row_of(replace(SEEN, at_work=(at_work,)), NOW).running
    assert (running.run_id, running.progress, running.at) == ("run-1", None, None)


def test_thinned_samples_keep_sums_and_the_largest_lag() -> None:
    minutes = [
        Sample(
            at=NOW + timedelta(minutes=minute), span=Span.MINUTE, lag=Lag(lag, None), records=1, bytes=2, seconds=0.5
        )
        for minute, lag in ((0, 5), (30, None), (57, 9), (58, 3))
    ]
    first, second = thinned(minutes, Span.HOUR)
    assert (first.at, first.lag, first.records, first.bytes) == (datetime(2026, 5, 4, 10, tzinfo=UTC), Lag(9), 3, 6)
    assert (second.at, second.lag, second.records) == (datetime(2026, 5, 4, 11, tzinfo=UTC), Lag(3), 1)
    assert thinned([], Span.DAY) == []
