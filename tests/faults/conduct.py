"""Injects a row's fault into a trial, heals it, and judges what came of it."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import psutil
from confluent_kafka import KafkaException

from kafka_replication.model.choices import EXACTLY_ONCE
from tests.faults import profiles
from tests.faults.judge import Judge, misreported, reported, without_the_engine
from tests.faults.moved_groups import misplaced
from tests.faults.sampler import Sampler
from tests.faults.trial import Trial, TrialFailed
from tests.support.checker import Comparison

FAILURES = (TrialFailed, AssertionError, LookupError, ValueError, OSError, KafkaException, psutil.Error, sqlite3.Error)


@dataclass
class Verdict:
    """What came of a trial."""

    outcome: str = ""  # healed, refused (by the expected name), or failed
    attempts: int = 0
    seconds: float = 0.0  # from the fault's beginning to the end of the run that said all is done
    counts: dict[str, int] = field(default_factory=dict)
    samples: int = 0
    error: str = ""  # the product's, where one is expected
    problems: list[str] = field(default_factory=list)


def conduct(
    trial: Trial,
    inject: Callable[[Trial], None],
    *,
    expected: str = "",
    ignore: tuple[str, ...] = (),
    sampled: bool = True,
) -> Verdict:
    """Inject the fault, run again until healed (or until the expected error was named), judge."""
    verdict = Verdict()
    with ExitStack() as stack:
        sampler = stack.enter_context(trial.sampled()) if sampled else None
        started = time.monotonic()
        try:
            inject(trial)
            if expected:
                verdict.error = _refusal(trial, expected)
            else:
                trial.heal()
            verdict.outcome = "refused" if expected else "healed"
        except FAILURES as e:
            verdict.problems.append(f"{type(e).__name__}: {e}")
        verdict.seconds = round((trial.healed or time.monotonic()) - (trial.hit or started), 1)
        time.sleep(0.3 if sampler else 0)  # one more sample of the end
    _settle(trial, verdict, sampler, complete=verdict.outcome == "healed", ignore=ignore)
    if verdict.outcome == "healed" and (final := trial.final_errors()):
        verdict.problems.append(f"a run said that running again cannot help, and it did: {final[0]}")
    if verdict.problems:
        verdict.outcome = "failed"
    return verdict


def _settle(
    trial: Trial, verdict: Verdict, sampler: Sampler | None, *, complete: bool, ignore: tuple[str, ...]
) -> None:
    verdict.attempts = len(trial.attempts)
    if left := trial.leftovers():
        verdict.problems.append(f"processes left behind: {left}")
    trial.bench.heal()
    counts = dict.fromkeys(Comparison.__slots__, 0)
    try:
        marks = trial.watermarks()
        judged = Judge(trial.bench, trial.load, marks, complete=complete, spread=trial.spread).judge(
            trial.target_topic, trial.quarantine_topic
        )
        told = ("doubled", "lost") if profiles.current().delivery != EXACTLY_ONCE else ()
        late = told and complete and trial.stood_still  # counted by the next run that copies, and by an audit
        told_of = trial.audited() if late else reported(trial.bench, trial.name)
    except (AssertionError, TrialFailed) as e:
        verdict.problems.append(f"cannot be judged: {e}")
        return
    for partition, comparison in judged.items():
        counts |= {name: count + len(getattr(comparison, name)) for name, count in counts.items()}
        whole = complete or marks.get(partition) == trial.load.ends[partition]
        if told:
            verdict.problems += misreported(partition, comparison, told_of[partition], whole=whole, ignore=ignore)
        if any(getattr(comparison, name) for name in counts if name not in (*ignore, *told)):
            verdict.problems.append(f"partition {partition}: {comparison}")
    verdict.counts = counts
    if complete:
        chunks = trial.bench.copied_to.engines(trial.name)
        trial.note(f"chunks by engine: {dict(chunks)}")
        verdict.problems += without_the_engine(chunks)
        try:
            verdict.problems += misplaced(trial)
        except FAILURES as e:
            verdict.problems.append(f"groups: {type(e).__name__}: {e}")
    if sampler is not None:
        verdict.samples = sampler.samples
        verdict.problems += sampler.violations
        if not sampler.samples:
            verdict.problems.append("nothing could be sampled")


def _refusal(trial: Trial, expected: str) -> str:
    """Run once more: it fails by the expected name, and no watermark passes the damage."""
    attempt = trial.start()
    outcome = trial.finish(attempt)
    named = next((error for error in attempt.errors if re.search(expected, error)), None)
    if outcome != "failed" or named is None:
        raise TrialFailed(f"expected a failed run that says {expected!r}, got {outcome} with {attempt.errors}")
    for partition, watermark in trial.watermarks().items():
        if watermark > trial.limits.get(partition, watermark):
            damage = trial.limits[partition]
            raise TrialFailed(f"partition {partition}: watermark {watermark} passed the damage at {damage}")
    return named
