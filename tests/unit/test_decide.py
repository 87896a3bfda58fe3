"""Which alerts are sent: one a cause, one a day, one when it is healed; and what explains what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from kafka_replication.alerting.decide import AFTERMATH, CLAIM, REPEAT_AFTER, decide
from kafka_replication.alerting.values import (
    AlertEvent,
    Cause,
    CauseKey,
    Decision,
    Kind,
    Observation,
    OpenCause,
    confirmed,
)

START = datetime(2030, 1, 31, 6, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def cause(kind: Kind, subject: str = "", **more: object) -> Cause:
    return replace(Cause(key=CauseKey(kind, subject), what=f"{kind} {subject}", remedy="mend it"), **more)  # type: ignore[arg-type]


@dataclass
class Story:
    """Looks one after the other, with a memory between them; what is told is confirmed."""

    open: Sequence[OpenCause] = ()
    now: datetime = START
    confirms: bool = True
    told: list[str] = field(default_factory=list)

    def look(self, *causes: Cause, after: timedelta = MINUTE, **more: object) -> list[str]:
        self.now += after
        return self.observe(replace(Observation(causes=causes), **more))  # type: ignore[arg-type]

    def observe(self, observed: Observation) -> list[str]:
        decision: Decision = decide(self.open, observed, self.now)
        self.open = decision.open
        if self.confirms:
            self.open = confirmed(decision.open, decision.alerts, self.now)
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
    """The second one looks before the first one has sent and confirmed."""
    story = Story(confirms=False)
    assert story.look(cause(Kind.GAP, "orders"), after=timedelta()) == ["opened gap orders"]
    assert story.look(cause(Kind.GAP, "orders"), after=CLAIM / 2) == []


def test_what_was_not_confirmed_is_told_again() -> None:
    story = Story(confirms=False)
    story.look(cause(Kind.GAP, "orders"))
    assert story.look(cause(Kind.GAP, "orders"), after=CLAIM) == ["opened gap orders"]
    story.confirms = True
    assert story.look(cause(Kind.GAP, "orders"), after=CLAIM) == ["opened gap orders"]
    story.confirms = False
    assert story.look() == ["healed gap orders"]
    assert story.look(after=CLAIM) == ["healed gap orders"]


def test_what_is_back_after_its_end_was_told_by_a_process_that_died_is_told_again() -> None:
    """Nobody knows if its end was heard. Without this the next outage would be told to nobody for a day."""
    story, away = Story(), cause(Kind.CLUSTER)
    story.look(away)
    story.confirms = False
    assert story.look() == ["healed cluster-unavailable"]
    story.confirms = True
    assert story.look(away, after=CLAIM / 2) == []  # the one who told its end may still confirm
    assert story.look(away, after=CLAIM) == ["opened cluster-unavailable"]
    assert story.look(away) == []
    assert story.look() == ["healed cluster-unavailable"]


def test_what_is_back_while_its_end_is_being_told_is_told_again() -> None:
    story, away = Story(), cause(Kind.CLUSTER)
    story.look(away)
    end = decide(story.open, Observation(), story.now + MINUTE)
    back = decide(end.open, Observation(causes=(away,)), story.now + MINUTE)
    assert [alert.event for alert in (*end.alerts, *back.alerts)] == [AlertEvent.HEALED]
    story.open = confirmed(back.open, end.alerts, story.now + MINUTE)
    assert story.look(away, after=2 * MINUTE) == ["opened cluster-unavailable"]


def test_a_way_that_is_dead_is_told_later_and_the_others_once() -> None:
    """And who was not told of the beginning is not told of the end."""
    gap = cause(Kind.GAP, "orders")
    row: tuple[OpenCause, ...] = ()
    now = START

    def look(*causes: Cause, dead: str = "", after: timedelta = MINUTE) -> list[tuple[str, tuple[str, ...]]]:
        nonlocal row, now
        now += after
        decision = decide(row, Observation(causes=causes), now, ways=("mail", "pager"))
        sent = [replace(alert, to=tuple(way for way in alert.to if way != dead)) for alert in decision.alerts]
        row = confirmed(decision.open, sent, now)
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


def test_what_an_earlier_version_announced_was_told_on_all_ways() -> None:
    gap = cause(Kind.GAP, "orders")
    [row] = decide((), Observation(causes=(gap,)), START).open
    row = replace(row, announced_at=START, claimed_until=None, told={})
    decision = decide((row,), Observation(causes=(gap,)), START, ways=("mail", "pager"))
    assert (decision.alerts, dict(decision.open[0].told)) == ((), {"mail": START, "pager": START})


def test_a_late_confirmation_changes_nothing() -> None:
    """Its claim ran out, and another process told it meanwhile."""
    first = decide((), Observation(causes=(cause(Kind.GAP, "orders"),)), START)
    second = decide(first.open, Observation(causes=(cause(Kind.GAP, "orders"),)), START + CLAIM)
    assert second.alerts
    assert confirmed(second.open, first.alerts, START + CLAIM) == second.open
    assert confirmed(second.open, second.alerts, START + CLAIM)[0].announced_at == START + CLAIM


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
        "quarantined",
        "repaired",
    }
