"""What is wrong with a replication: its runs, its schedule and its partitions, without brokers."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kafka_replication.alerting.open_causes import Cause, CauseKey, Kind, Observation, OpenCause, decide
from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Ids
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning.foresight import SourceLoss
from kafka_replication.planning.plan import PartitionPlan, State
from kafka_replication.reporting.causes import (
    BACKFILL,
    Life,
    Planning,
    RunFacts,
    RunsSeen,
    is_first_copy,
    lasting,
    partition_causes,
    problems,
    run_causes,
)
from kafka_replication.reporting.status import PartitionStatus, behind, row_of, with_times
from kafka_replication.runs.watching import life_of
from kafka_replication.watermarks.values import Lease, RangeOutcome, RunRecord

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def replication(**more: Any) -> Replication:
    return Replication.model_validate(
        {
            "name": "orders-dr",
            "source": {"connection": "source"},
            "target": {"connection": "target"},
            "topics": {"include": ["^o"]},
            **more,
        }
    )


def record(state: str = "planned", run_id: str = "cli-1", kind: str = "live", **more: Any) -> RunRecord:
    values: dict[str, Any] = {"created_at": NOW - HOUR, "finished_at": None, **more}
    return RunRecord(run_id=run_id, replication="orders-dr", kind=kind, state=state, plan="{}", **values)


def run(life: Life = Life.ENDED, state: str = "done", ago: timedelta = MINUTE, **more: Any) -> RunFacts:
    failed = more.pop("failed", ())
    finished = NOW - ago if life is Life.ENDED else None
    made = record(state, finished_at=finished, **more)
    return RunFacts(record=made, life=life, moved_at=NOW - ago, failed=failed)


def failed(topic: str, partition: int = 0) -> RangeOutcome:
    key = PartitionKey("orders-dr", TopicPartition(topic, partition), topic)
    return RangeOutcome(run_id="cli-1", key=key, range=OffsetRange(5, 9), error=f"{topic} full", remedy="empty it")


def kinds(*runs: RunFacts, planning: Planning | None = None, paused: bool = False, **more: Any) -> list[str]:
    seen = RunsSeen(runs=runs, planning=planning, paused=paused)
    return [str(cause.key) for cause in run_causes(replication(**more), seen, NOW)]


CASES: list[tuple[str, tuple[RunFacts, ...], list[str]]] = [
    ("nothing ran", (), []),
    ("the last one is done", (run(), run(state="failed", failed=(failed("o1"),))), []),
    ("a seal refused the last one", (run(state="sealed"), run(state="failed", failed=(failed("o1"),))), []),
    (
        "it failed for two topics",
        (run(state="failed", failed=(failed("o1"), failed("o2"))),),
        ["run-failed o1", "run-failed o2"],
    ),
    (
        "twenty partitions are one cause",
        (run(state="failed", failed=tuple(failed("o1", n) for n in range(20))),),
        ["run-failed o1"],
    ),
    ("it failed as a whole", (run(state="failed"),), ["run-failed"]),
    ("a new one works, the last one failed", (run(Life.AT_WORK, "planned"), run(state="failed")), ["run-failed"]),
    ("it is gone", (run(Life.DIED, "planned"),), ["run-died"]),
    ("it works", (run(Life.AT_WORK, "planned", ago=9 * MINUTE),), []),
    ("it works and does not move", (run(Life.AT_WORK, "planned", ago=11 * MINUTE),), ["run-stalled"]),
    ("a backfill failed", (run(state="failed", kind=BACKFILL), run()), ["run-failed backfill"]),
    ("a backfill failed yesterday", (run(state="failed", kind=BACKFILL, ago=25 * HOUR), run()), []),
]


@pytest.mark.parametrize(("runs", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_runs(runs: tuple[RunFacts, ...], expected: list[str]) -> None:
    assert kinds(*runs) == expected


def test_a_run_that_cannot_make_its_plan_is_stalled() -> None:
    assert kinds(planning=Planning(run_id="cli-1", since=NOW - 9 * MINUTE)) == []
    assert kinds(planning=Planning(run_id="cli-1", since=NOW - 11 * MINUTE)) == ["run-stalled"]


def test_reading_back_is_given_the_time_of_copying() -> None:
    progress = {"ranges": 1, "ranges_done": 0, "offsets": 9, "offsets_done": 9, "seconds": 1200.0}
    for ago, told in ((29 * MINUTE, []), (31 * MINUTE, ["run-stalled"])):
        assert kinds(run(Life.AT_WORK, "planned", ago=ago, progress=json.dumps(progress))) == told


def test_a_schedule_is_missed_once_it_was_due_for_long() -> None:
    """The last run began an hour ago, at 11:00."""
    assert kinds(run(), schedule="55 * * * *") == []  # due at 11:55, five minutes ago
    assert kinds(run(), schedule="45 * * * *") == ["schedule-missed"]
    assert kinds(run(), schedule="45 * * * *", paused=True) == []
    assert kinds(run(Life.AT_WORK, "planned"), run(), schedule="45 * * * *") == []
    assert kinds(schedule="45 * * * *") == []  # never started
    assert kinds(run(), schedule="@once") == kinds(run()) == []


LEASE = Lease(replication="orders-dr", owner="cli-1", holder="x", acquired_at=NOW, expires_at=NOW, token=1)


@pytest.mark.parametrize(
    ("state", "run_id", "lease", "said", "life"),
    [
        ("done", "cli-1", None, None, Life.ENDED),
        ("sealed", "cli-1", None, None, Life.ENDED),
        ("planned", "cli-1", LEASE, None, Life.AT_WORK),
        ("planned", "cli-1", replace(LEASE, waiting=True), None, Life.AT_WORK),
        ("planned", "cli-1", None, None, Life.DIED),
        ("planned", "cli-2", LEASE, None, Life.DIED),
        ("planned", "airflow-orders-dr-1", None, None, Life.UNKNOWN),
        ("planned", "airflow-orders-dr-1", None, "running", Life.AT_WORK),
        ("planned", "airflow-orders-dr-1", None, "queued", Life.AT_WORK),
        ("planned", "cli-1", LEASE, "failed", Life.DIED),
    ],
)
def test_whether_a_run_is_at_work(state: str, run_id: str, lease: Lease | None, said: str | None, life: Life) -> None:
    assert life_of(record(state, run_id), [lease] if lease else [], said)[0] is life


def opened(kind: Kind, subject: str = "", ago: timedelta = HOUR, run_id: str = "cli-0") -> OpenCause:
    cause = Cause(key=CauseKey(kind, subject), what="w", remedy="r", at=NOW - ago, run_id=run_id)
    return replace(decide((), Observation(causes=(cause,)), NOW).open[0], announced_at=NOW)


@pytest.mark.parametrize(
    ("row", "runs", "expected"),
    [
        (opened(Kind.FAILED), (), "kept"),
        (opened(Kind.FAILED), (run(Life.AT_WORK, "planned"),), "kept"),
        (opened(Kind.FAILED), (run(ago=2 * HOUR),), "kept"),
        (opened(Kind.FAILED), (run(state="failed", failed=(failed("o1"),)),), "kept"),
        (opened(Kind.FAILED), (run(),), "healed"),
        (opened(Kind.FAILED, "o2"), (run(state="failed", failed=(failed("o1"),)),), "healed"),
        (opened(Kind.DIED), (run(Life.AT_WORK, "planned"), run(ago=2 * HOUR)), "kept"),
        (opened(Kind.FAILED, BACKFILL), (run(),), "over"),
        (opened(Kind.FAILED, BACKFILL), (run(kind=BACKFILL),), "healed"),
        (opened(Kind.FAILED, ago=MINUTE, run_id="cli-1"), (run(ago=HOUR),), "healed"),  # cleared: the same run again
    ],
)
def test_how_a_failure_that_is_not_seen_any_more_ends(
    row: OpenCause, runs: tuple[RunFacts, ...], expected: str
) -> None:
    observed = lasting(Observation(), [row], runs)
    found = "kept" if row.key in observed.kept else "over" if row.key in observed.over else "healed"
    assert found == expected


def row(partition: int = 0, topic: str = "orders", state: State = State.BEHIND, **more: Any) -> PartitionStatus:
    plan = PartitionPlan(
        key=PartitionKey("orders-dr", TopicPartition(topic, partition), topic),
        state=state,
        ids=Ids("SRC", "s", "t"),
        generation=1,
        start=0,
        position=60,
        source_end=100,
        watermark=60,
        what=f"{topic}-{partition} is {state}" if state not in (State.BEHIND, State.PENDING) else "",
        remedy="mend it",
        verify=more.pop("verify", Coverage()),
    )
    last_verified = more.pop("last_verified", "2030-01-31T11:00:00.000Z")
    return row_of(plan, log_start=0, position=60, last_verified=last_verified, **more)


def test_partitions() -> None:
    gaps = [row(n, state=State.OVERRUN) for n in range(20)]
    [gap, refused] = partition_causes(replication(), [*gaps, row(3, "others", State.VANISHED)])
    assert (str(gap.key), str(refused.key)) == ("gap orders", "refused others")
    assert len(gap.places) == 20 and "19 other partitions" in gap.what


def test_lag_is_one_cause_for_all_partitions_beyond_the_limit() -> None:
    rows = [row(n, lag_seconds=90.0 * n) for n in range(3)]
    assert list(partition_causes(replication(), rows)) == []
    [lag] = partition_causes(replication(alerts={"lag": {"seconds": 60}}), rows)
    assert [place.split()[0] for place in lag.places] == ["orders-1", "orders-2"]
    [lag] = partition_causes(replication(alerts={"lag": {"records": 39, "seconds": 60}}), rows)
    assert len(lag.places) == 3
    assert "39 offsets or 60 s" in lag.what and "orders-1" not in lag.what
    assert list(partition_causes(replication(alerts={"lag": {"records": 40}}), rows)) == []


def loss(partition: int, seconds: float, topic: str = "orders") -> SourceLoss:
    key = PartitionKey("orders-dr", TopicPartition(topic, partition), topic)
    return SourceLoss(key=key, first=60, oldest=0, keeps=86_400_000, waiting=40, seconds=seconds)


def test_records_that_will_be_lost_are_one_cause_for_each_topic() -> None:
    rows = [
        row(0, loss=loss(0, 7200)),
        row(1, loss=loss(1, 3600 * 1.5)),
        row(2),
        row(0, "other", loss=loss(0, 9, "other")),
    ]
    orders, other = partition_causes(replication(), rows)
    assert (str(orders.key), str(other.key)) == ("loss-foreseen orders", "loss-foreseen other")
    assert orders.what.startswith(
        "records may be lost in 1.5 h unless they are copied before: the oldest one of orders-1 "
    )
    assert "1 other partitions of orders" in orders.what
    assert (orders.places, orders.patience) == (("orders-1 at 60", "orders-0 at 60"), 0)
    [problem] = problems(replication(), rows[:1], NOW)
    assert problem.startswith("orders-0: records may be lost in 2.0 h")


def test_a_loss_that_is_near_is_told_although_something_else_explains_the_lag() -> None:
    """Somebody has to act now, whoever was told of the failed run days ago."""
    before = decide(
        (), Observation(causes=tuple(run_causes(replication(), RunsSeen(runs=(run(state="failed"),)), NOW))), NOW
    )
    seen = Observation(
        causes=(*(row.cause for row in before.open), *partition_causes(replication(), [row(loss=loss(0, 9))]))
    )
    after = decide(before.open, seen, NOW + HOUR)
    assert "loss-foreseen orders" in [str(alert.open.key) for alert in after.alerts]


def test_a_first_copy_lasts_until_a_run_of_it_has_ended() -> None:
    """A backfill is none; what failed needs a person, so that the lag counts."""
    first = [(), ("planned",), ("planned", "failed")]
    later = [("failed",), ("planned", "done"), ("failed", "done"), ("nothing_to_do",)]
    for states in (*first, *later):
        records = [record("done", kind=BACKFILL), *map(record, states)]
        assert is_first_copy(records) is (states in first), states


def test_a_backfill_into_another_topic_has_no_lag() -> None:
    made = row(lag_seconds=90.0)
    elsewhere = replace(made, target_topic="elsewhere")
    limited = replication(alerts={"lag": {"seconds": 60}})
    assert len(list(partition_causes(limited, [made]))) == 1
    assert list(partition_causes(limited, [elsewhere])) == []


def test_a_repair_is_told_for_a_day_and_ends_without_a_message() -> None:
    (cause,) = partition_causes(replication(), [row(repaired=("[5, 9): 4 records",)), row(1)])
    assert (str(cause.key), cause.places) == ("repaired orders", ("orders-0 [5, 9): 4 records",))
    told = decide((), Observation(causes=(cause,)), NOW)
    assert lasting(Observation(), told.open, ()).over == {cause.key}
    assert decide(told.open, lasting(Observation(), told.open, ()), NOW + HOUR).alerts == ()


def test_status_names_what_is_unverified_for_long() -> None:
    pending = row(state=State.PENDING, verify=Coverage((OffsetRange(0, 60),)))
    assert problems(replication(), [pending], NOW) == []
    [problem] = problems(replication(), [pending], NOW + timedelta(days=1))
    assert "orders-0" in problem
    assert problems(replication(), [row()], NOW + timedelta(days=9)) == []


def test_the_age_of_the_oldest_record_that_is_not_verified() -> None:
    at = TopicPartition("orders", 0)
    assert behind([row()]) == {at: 60}
    hour_ago = int((NOW - HOUR).timestamp() * 1000)
    ages: list[tuple[dict[TopicPartition, int | None], float | None]] = [
        ({at: hour_ago}, 3600.0),
        ({at: None}, 0.0),
        ({}, None),
    ]
    for times, age in ages:
        assert with_times([row()], times, NOW)[0].lag_seconds == age
