"""The faults, one row each: what is done to whom, and what is expected."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.faults.trial import Trial

Inject = Callable[[Trial], None]


@dataclass(frozen=True)
class Row:
    """``expected`` is a pattern of the error that names the fault; empty where running again heals it.

    ``own_load`` rows damage the source's data and get a topic of their own. ``ignore`` names what the fault itself brings about.
    """

    name: str
    inject: Inject
    kind: Literal["core", "other"] = "other"
    expected: str = ""
    own_load: bool = False
    ignore: tuple[str, ...] = ()
    sampled: bool = True


def target_broker_killed(trial: Trial) -> None:
    run = trial.start()
    trial.middle(run)
    broker = trial.dice.choice(trial.bench.target.brokers)
    trial.note(f"killing {broker}")
    broker.kill()
    time.sleep(trial.dice.random() * 8)
    broker.start()
    trial.note(f"{broker} is back; run {run.number}: {run.end()} {run.errors}")


ROWS = {row.name: row for row in (
    Row("target-broker-killed", target_broker_killed, "core"),
)}  # fmt: skip
