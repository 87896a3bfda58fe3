"""Faults of the commands that turn a replication around. Only a copy that is exactly once can be sealed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafka_replication.model.choices import EXACTLY_ONCE
from tests.faults import profiles
from tests.faults.attempt import Attempt
from tests.faults.row import Row
from tests.faults.trial import Trial, TrialFailed

CALLS = 8


def source_given_up(trial: Trial) -> None:
    """The source is given up while a run is at work or stands still, and its broker answers, is dead, or comes back for 5 s
    and goes again: what is sealed stays as it is, whatever that run does, and a later run refuses; then it is opened again.
    """
    run = trial.sleeper() if (asleep := trial.dice.randrange(2)) else trial.start()
    if not _can_be_sealed(trial):
        run.kill(signal.SIGCONT)
        trial.finish(run)
        return
    if not asleep:
        trial.middle(run)
    with _source(trial, trial.dice.choice(["answers", "is dead", "comes and goes"])):
        _done(trial, _started(trial, "failover"), "sealed")
    _stays_sealed(trial, run)
    _done(trial, _started(trial, "undo"), "opened again")


def cut_over_and_back(trial: Trial) -> None:
    """A cut-over dies in the middle of its copy, or a broker of either side does; it is called again until the direction is
    sealed, and a later run refuses. Then the same with a failback, at any moment of it.
    """
    if not _can_be_sealed(trial):
        trial.whole()
        return
    _until(trial, "cutover", "cut over", lambda command: trial.middle(command))
    _stays_sealed(trial)
    _until(trial, "failback", "gone back", lambda _: time.sleep(trial.dice.random() * 6))  # the dice choose the moment


@contextmanager
def _source(trial: Trial, state: str) -> Iterator[None]:
    """The state of the source's broker meanwhile; afterwards it answers."""
    trial.note(f"the source {state}")
    broker, over = trial.bench.source.brokers[0], threading.Event()

    def flap() -> None:
        while not over.is_set():
            broker.start()
            over.wait(5)
            broker.kill()

    if state != "answers":
        broker.kill()
    flapping = threading.Thread(target=flap) if state == "comes and goes" else None
    if flapping:
        flapping.start()
    try:
        yield
    finally:
        over.set()
        if flapping:
            flapping.join()
        trial.bench.source.heal()


def _can_be_sealed(trial: Trial) -> bool:
    return profiles.current().delivery == EXACTLY_ONCE and not trial.spread


def _started(trial: Trial, what: str) -> Attempt:
    trial.job["turn"] = what
    command = trial.start()
    del trial.job["turn"]
    trial.forgive(command)  # whoever called it looks at what was in its way, and calls it again
    return command


def _done(trial: Trial, command: Attempt, wanted: str) -> None:
    if (outcome := trial.finish(command)) != wanted:
        raise TrialFailed(f"the command ended with {outcome}: {command.errors}")


def _until(trial: Trial, what: str, wanted: str, moment: Callable[[Attempt], None]) -> None:
    """The command meets its fault, and is called again until it is done."""
    command = _started(trial, what)
    moment(command)
    sides = {"source": trial.bench.source, "target": trial.bench.target}
    if (fault := trial.dice.choice(["command", *sides])) == "command":
        trial.note(f"killing the {what}")
        command.kill()
    else:
        broker = trial.dice.choice(sides[fault].brokers)
        trial.note(f"killing {broker}")
        broker.kill()
        time.sleep(trial.dice.random() * 8)
        broker.start()
        sides[fault].heal()
    for _ in range(CALLS):
        if trial.finish(command) == wanted:
            return
        command = _started(trial, what)
    _done(trial, command, wanted)


def _stays_sealed(trial: Trial, *at_work: Attempt) -> None:
    there = trial.bench.copied_to.logs(trial.target_topic)
    for run in at_work:
        run.kill(signal.SIGCONT)
    for late in (*at_work, trial.start()):
        trial.forgive(late)
        if (outcome := trial.finish(late)) != "failed" and late not in at_work:
            raise TrialFailed(f"a run behind the seal ended with {outcome}")
    if trial.bench.copied_to.logs(trial.target_topic) != there:
        raise TrialFailed("something was committed behind the seal")


ROWS = (
    Row("source-given-up", source_given_up, "core"),
    Row("cut-over-and-back", cut_over_and_back, "core"),
)
