"""Which alerts are sent: one a cause, one a day, one when it is healed; and what explains what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from kafka_replication.alerting.open_causes import (
    AFTERMATH,
    REPEAT_AFTER,
    AlertEvent,
    Cause,
    CauseKey,
    Decision,
    Kind,
    Observation,
    OpenCause,
    decide,
    taken_back,
)

START = datetime(2030, 1, 31, 6, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def cause(kind: Kind, subject: str = "", **more: object) -> Cause:
    return replace(Cause(key=CauseKey(kind, subject), what=f"{kind} {subject}", remedy="mend it"), **more)  # type: ignore[arg-type]


@dataclass
class Story:
    """Looks one after the other, with a memory between them."""

    open: Sequence[OpenCause] = ()
    now: datetime = START
    told: list[str] = field(default_factory=list)

    def look(self, *causes: Cause, after: timedelta = MINUTE, **more: object) -> list[str]:
        self.now += after
        return self.observe(replace(Observation(causes=causes), **more))  # type: ignore[arg-type]

    def observe(self, observed: Observation) -> list[str]:
        decision: Decision = decide(self.open, observed, self.now)
        self.open = decision.open
        return [f"{alert.event} {alert.open.key}" for alert in decision.alerts]


def test_a_cause_is_told_once_and_its_end_once() -> None:
    story = Story()
    failed = cause(Kind.FAILED, "orders")
    assert story.look(failed) == ["opened run-failed orders"]
    assert story.look(failed) == story.look(failed) == []
    assert story.look() == ["healed run-failed orders"]
    assert story.look() == []
    assert story.open == ()
    assert story.look(failed) == ["opened run-failed orders"]


def test_a_cause_that_lasts_is_told_once_a_day() -> None:
    story = Story()
    story.look(cause(Kind.GAP, "orders"))
    assert story.look(cause(Kind.GAP, "orders"), after=REPEAT_AFTER - MINUTE) == []
    assert story.look(cause(Kind.GAP, "orders")) == ["repeated gap orders"]
    assert story.look(cause(Kind.GAP, "orders")) == []


def test_patience_lasts_from_the_first_look() -> None:
    story = Story()
    away = cause(Kind.CLUSTER, patience=600)
    assert [story.look(away) for _ in range(10)] == [[]] * 10
    assert story.look(away) == ["opened cluster-unavailable"]


def test_a_blink_is_never_told() -> None:
    story = Story()
    story.look(cause(Kind.CLUSTER, patience=600))
    assert story.look() == []
    assert story.open == ()


def test_what_cannot_be_judged_is_neither_healed_nor_forgotten() -> None:
    story = Story()
    story.look(cause(Kind.LAG))
    assert story.look(judged=frozenset({Kind.FAILED})) == []
    assert story.look(after=REPEAT_AFTER, judged=frozenset({Kind.FAILED})) == []
    assert story.look() == ["healed lag"]


def test_a_cause_that_is_kept_is_repeated_and_not_healed() -> None:
    story = Story()
    failed = cause(Kind.FAILED)
    story.look(failed)
    assert story.look(kept=frozenset({failed.key})) == []
    assert story.look(after=REPEAT_AFTER, kept=frozenset({failed.key})) == ["repeated run-failed"]


def test_a_cause_that_is_over_ends_without_a_message() -> None:
    story = Story()
    failed = cause(Kind.FAILED, "backfill")
    story.look(failed)
    assert story.look(over=frozenset({failed.key})) == []
    assert story.open == ()


def test_a_target_that_is_away_is_one_alert_and_one_when_all_is_well_again() -> None:
    story = Story()
    away, stalled = cause(Kind.CLUSTER, patience=600), cause(Kind.STALLED, at=START)
    for _ in range(9):
        assert story.look(away) == []
    assert story.look(away, stalled) == ["opened cluster-unavailable"]  # what follows from it ends the patience
    assert story.look(away, stalled, cause(Kind.LAG)) == []
    failed = cause(Kind.FAILED, "orders", at=story.now)
    assert story.look(away, failed, cause(Kind.LAG)) == []
    assert story.look(failed, cause(Kind.LAG)) == []  # the target is back; the run has still failed
    assert story.look(cause(Kind.LAG)) == []
    assert story.look() == ["healed cluster-unavailable"]
    assert story.open == ()


def test_a_ledger_that_takes_nothing_is_one_alert_of_its_own() -> None:
    story = Story()
    full, stalled = cause(Kind.LEDGER, patience=600), cause(Kind.STALLED, at=START)
    assert story.look(full) == []
    assert story.look(full, stalled) == ["opened ledger-not-writable"]
    assert story.look(full, cause(Kind.FAILED, "orders", at=story.now)) == []
    assert story.look(cause(Kind.FAILED, "orders", at=story.now)) == []
    assert story.look() == ["healed ledger-not-writable"]


def test_what_happens_after_the_cause_is_gone_is_told() -> None:
    story = Story()
    story.look(cause(Kind.CLUSTER))
    first = cause(Kind.FAILED, "orders", at=story.now)
    assert story.look(first) == []
    story.look(first, after=AFTERMATH)
    later = cause(Kind.FAILED, "orders", at=story.now)
    assert story.look(later) == ["opened run-failed orders", "healed cluster-unavailable"][::-1]


def test_a_stall_that_was_told_explains_the_failure_after_it() -> None:
    story = Story()
    assert story.look(cause(Kind.STALLED)) == ["opened run-stalled"]
    assert story.look(cause(Kind.CLUSTER)) == []
    assert story.look(cause(Kind.FAILED, "orders", at=story.now)) == []
    assert story.look() == ["healed run-stalled"]


def test_a_gap_explains_the_failure_of_its_topic_only() -> None:
    story = Story()
    told = story.look(cause(Kind.FAILED, "orders"), cause(Kind.GAP, "orders"), cause(Kind.FAILED, "payments"))
    assert told == ["opened gap orders", "opened run-failed payments"]


def test_a_run_that_dies_while_the_lag_is_open_is_told() -> None:
    story = Story()
    story.look(cause(Kind.LAG))
    assert story.look(cause(Kind.LAG), cause(Kind.DIED)) == ["opened run-died"]


def test_two_processes_tell_it_once() -> None:
    """The second one looks before the first one has sent it."""
    story = Story()
    assert story.look(cause(Kind.GAP, "orders"), after=timedelta()) == ["opened gap orders"]
    assert story.look(cause(Kind.GAP, "orders"), after=timedelta()) == []


def test_what_nobody_took_is_told_again() -> None:
    now, gap = START, Observation(causes=(cause(Kind.GAP, "orders"),))
    open_: Sequence[OpenCause] = ()
    for observed, event in ((gap, AlertEvent.OPENED), (Observation(), AlertEvent.HEALED)):
        for took in (False, False, True):
            now += MINUTE
            decision = decide(open_, observed, now)
            assert [alert.event for alert in decision.alerts] == [event]
            open_ = decision.open if took else taken_back(decision.open, decision.alerts)
    assert open_ == ()


def test_a_repetition_that_nobody_took_is_told_again() -> None:
    story = Story()
    story.look(cause(Kind.GAP, "orders"))
    late = decide(story.open, Observation(causes=(cause(Kind.GAP, "orders"),)), story.now + REPEAT_AFTER)
    assert [alert.event for alert in late.alerts] == [AlertEvent.REPEATED]
    assert taken_back(late.open, late.alerts)[0].told == story.open[0].told


def test_what_is_back_while_its_end_is_being_told_is_told_again() -> None:
    story, away = Story(), cause(Kind.CLUSTER)
    story.look(away)
    end = decide(story.open, Observation(), story.now + MINUTE)
    assert [alert.event for alert in end.alerts] == [AlertEvent.HEALED]
    story.open = end.open
    assert story.look(away, after=2 * MINUTE) == ["opened cluster-unavailable"]
    assert taken_back(story.open, end.alerts) == story.open  # nobody heard of its end, and it is not over


def test_a_way_that_is_dead_is_told_later_and_the_others_once() -> None:
    """And who was not told of the beginning is not told of the end."""
    gap = cause(Kind.GAP, "orders")
    row: tuple[OpenCause, ...] = ()
    now = START

    def look(*causes: Cause, dead: str = "", after: timedelta = MINUTE) -> list[tuple[str, tuple[str, ...]]]:
        nonlocal row, now
        now += after
        decision = decide(row, Observation(causes=causes), now, ways=("mail", "pager"))
        untold = [replace(alert, to=(dead,)) for alert in decision.alerts if dead in alert.to]
        row = taken_back(decision.open, untold)
        return [(alert.event.value, alert.to) for alert in decision.alerts]

    assert look(gap, dead="pager") == [("opened", ("mail", "pager"))]
    assert look(gap, dead="pager") == [("opened", ("pager",))]
    assert look(gap) == [("opened", ("pager",))]
    assert look(gap) == []
    assert look(dead="pager") == [("healed", ("mail", "pager"))]
    assert look(gap, dead="pager") == [("opened", ("mail",))]  # the pager never heard that it was over
    assert look(dead="pager") == [("healed", ("mail", "pager"))]
    assert look(dead="pager") == [("healed", ("pager",))]
    assert look(after=REPEAT_AFTER) == []  # it is not awaited for ever
    assert row == ()
    assert look(gap, dead="pager") == [("opened", ("mail", "pager"))]
    assert look() == [("healed", ("mail",))]
    assert row == ()


def test_what_is_taken_back_late_changes_nothing() -> None:
    """Another process has told it meanwhile."""
    first = decide((), Observation(causes=(cause(Kind.GAP, "orders"),)), START)
    untold = taken_back(first.open, first.alerts)
    second = decide(untold, Observation(causes=(cause(Kind.GAP, "orders"),)), START + MINUTE)
    assert second.alerts and second.open[0].announced_at == START + MINUTE
    assert taken_back(second.open, first.alerts) == second.open


def test_events_have_stable_ids() -> None:
    assert [*AlertEvent] == ["opened", "repeated", "healed"]
    assert {kind.value for kind in Kind} == {
        "store-unavailable",
        "cluster-unavailable",
        "not-admitted",
        "ledger-not-writable",
        "gap",
        "loss-foreseen",
        "removed",
        "refused",
        "run-stalled",
        "run-died",
        "run-failed",
        "schedule-missed",
        "lag",
        "drill-worse",
        "drill-overdue",
        "quarantined",
        "repaired",
    }
