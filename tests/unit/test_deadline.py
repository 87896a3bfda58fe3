"""One budget of time, and repeating what may pass by itself within it."""

from __future__ import annotations

import pytest

from kafka_replication.model.errors import (
    AttemptsExhausted,
    Busy,
    Fenced,
    NoProgress,
    OutOfTime,
    Refused,
    ReplicationError,
    Stalled,
    Unreachable,
)
from kafka_replication.runtime.deadline import NEVER, Deadline, backoff, retry

OVER = Deadline(0.0)  # the monotonic clock is past it


def test_without_a_bound_every_wait_is_as_long_as_it_asks() -> None:
    assert (NEVER.within(960.0), NEVER.seconds) == (960.0, None)
    NEVER.check("copying")


def test_a_wait_is_at_most_what_is_left() -> None:
    deadline = Deadline.after(100)
    assert 0 < deadline.within(960.0) <= 100
    assert deadline.within(1.0) == 1.0
    assert 0 < (deadline.seconds or 0) <= 100


def test_what_is_over_names_what_was_going_on_and_the_last_error() -> None:
    assert OVER.within(960.0) == 0
    with pytest.raises(OutOfTime) as over:
        OVER.check("copying orders-0", Unreachable("the target is away", "start it"))
    assert (
        over.value.what
        == "copying orders-0: the run's time (timeouts.run) is used up; the last error was: the target is away"
    )
    assert over.value.remedy.startswith("start it; then run again")
    assert not over.value.retriable


class Flaky:
    """Raises what it is given, one after the other, then answers."""

    def __init__(self, *errors: ReplicationError) -> None:
        self.errors, self.calls = list(errors), 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def test_what_passes_by_itself_is_repeated_with_growing_pauses() -> None:
    pauses: list[float] = []
    call = Flaky(*[Unreachable("away"), Stalled("slow")] * 3)
    assert retry("asking", call, NEVER, 500, pause=pauses.append) == "answer"
    assert pauses == pytest.approx([0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_the_number_of_attempts_is_a_bound() -> None:
    call = Flaky(*[Unreachable(f"away {number}") for number in range(9)])
    with pytest.raises(Unreachable, match="away 2"):
        retry("asking", call, NEVER, 3, pause=lambda seconds: None)
    assert call.calls == 3


def test_the_error_after_the_last_attempt_can_have_a_name_of_its_own() -> None:
    call = Flaky(*[Unreachable(f"away {number}", "start it") for number in range(9)])
    with pytest.raises(AttemptsExhausted, match=r"asking: 3 attempts in a row failed, .*: away 2") as e:
        retry("asking", call, NEVER, 3, exhausted=AttemptsExhausted.of, pause=lambda seconds: None)
    assert e.value.remedy == "start it" and e.value.retriable


@pytest.mark.parametrize("error", [Refused("no"), Fenced("no"), Busy("no"), OutOfTime("no"), NoProgress("no")])
def test_what_does_not_pass_fails_at_once(error: ReplicationError) -> None:
    call = Flaky(error)
    with pytest.raises(type(error)):
        retry("asking", call, NEVER, 500, pause=lambda seconds: None)
    assert call.calls == 1


def test_attempts_are_counted_from_the_last_progress() -> None:
    """Four failures, with progress before the third: no three of them follow each other without progress."""
    call, done = Flaky(*[Unreachable(f"away {number}") for number in range(4)]), iter([0, 0, 0, 7, 7])
    assert retry("asking", call, NEVER, 3, pause=lambda seconds: None, progress=lambda: next(done)) == "answer"
    assert call.calls == 5


def test_pauses_begin_anew_after_progress() -> None:
    pauses: list[float] = []
    call, done = Flaky(*[Unreachable("away")] * 4), iter([0, 0, 0, 7, 7])
    retry("asking", call, NEVER, 9, pause=pauses.append, progress=lambda: next(done))
    assert pauses == pytest.approx([0.4, 0.8, 0.4, 0.8])


def test_the_time_is_a_bound_too() -> None:
    call = Flaky(Unreachable("away", "start it"))
    with pytest.raises(OutOfTime, match=r"asking: .* used up; the last error was: away"):
        retry("asking", call, Deadline.after(0.1), 500, pause=lambda seconds: None)
    assert call.calls == 1


def test_pauses_do_not_grow_for_ever() -> None:
    assert backoff(10_000) == 5.0


class Time:
    """The monotonic clock, which only moves when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def test_a_range_that_does_not_move_is_given_up_and_may_be_tried_again(time: Time) -> None:
    moving = NEVER.while_moving(600)
    time.pass_by(599)
    assert moving.within(960) == 1
    moving.check("copying orders-0")
    time.pass_by(1)
    with pytest.raises(NoProgress) as over:
        moving.check("copying orders-0", Unreachable("the target is away", "start it"))
    assert over.value.retriable
    assert "the target is away" in over.value.what and over.value.remedy.startswith("start it; ")


def test_a_range_that_moves_goes_on(time: Time) -> None:
    moving = NEVER.while_moving(600)
    for _ in range(10):
        time.pass_by(599)
        moving.moved()
    moving.check("copying orders-0")
    assert moving.seconds is None  # of the run's time


def test_the_runs_time_ends_a_range_that_moves(time: Time) -> None:
    moving = Deadline.after(1_000).while_moving(600)
    time.pass_by(599)
    moving.moved()
    assert moving.left == 401
    time.pass_by(401)
    with pytest.raises(OutOfTime):
        moving.check("copying orders-0")


def test_attempts_end_without_progress_before_their_number_is_reached(time: Time) -> None:
    """Each failure comes after 100 s; what was verified before the third makes the time start anew."""
    done, call = iter([0, 0, 0, 7, 7, 7, 7, 7, 7, 7]), Flaky(*[Unreachable("away")] * 50)

    def slowly() -> str:
        time.pass_by(100)
        return call()

    with pytest.raises(NoProgress, match="the last error was: away"):
        retry("asking", slowly, NEVER.while_moving(450), 500, pause=time.pass_by, progress=lambda: next(done))
    assert call.calls == 8


def test_patience_is_a_bound_that_keeps_the_error() -> None:
    """The next run may succeed: unlike a run's time, it is not used up."""
    call = Flaky(Unreachable("away"))
    with pytest.raises(Unreachable, match="away"):
        retry("asking", call, NEVER, 500, patience=0.1, pause=lambda seconds: None)
    assert call.calls == 1
