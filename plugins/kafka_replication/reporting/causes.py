"""Derives the causes of alerts from the state of a replication's partitions, its runs and its schedule. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from kafka_replication.alerting.open_causes import Cause, CauseKey, Kind, Observation, OpenCause
from kafka_replication.config import Replication
from kafka_replication.config.names import last_due
from kafka_replication.model.commands import failed_list, on_lines
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.times import duration, to_text
from kafka_replication.planning.foresight import by_topic, others
from kafka_replication.planning.plan import State
from kafka_replication.reporting.progress import Progress
from kafka_replication.reporting.status import PartitionStatus
from kafka_replication.watermarks.values import ENDED_WELL, RangeOutcome, RunRecord

BACKFILL = "backfill"  # the kind of a backfill's run, and the subject of its failure
_GAPS = frozenset({State.OVERRUN, State.LATE_GAP})
_RUN_AGAIN = "run again: only what is left is repeated"
_ONE_DAY = timedelta(days=1)
# Only what a run left that died waits for the next one: after a day somebody should know, however rare runs are.
_UNVERIFIED = _ONE_DAY


class Life(StrEnum):
    """The state of a run at work. ``UNKNOWN``: nothing shows that it works, and nothing shows that it has ended."""

    AT_WORK = "at work"
    ENDED = "ended"
    DIED = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run and its `Life`. ``failed`` has the outcomes with an error; ``why`` is the reason of the end, if known."""

    record: RunRecord
    life: Life
    moved_at: datetime
    failed: tuple[RangeOutcome, ...] = ()
    why: str = ""

    @property
    def progress(self) -> Progress | None:
        return Progress.from_json(self.record.progress) if self.record.progress else None

    @property
    def succeeded(self) -> bool:
        return self.record.state in ENDED_WELL

    @property
    def ended_at(self) -> datetime:
        return self.record.finished_at or self.moved_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """A run that is at work and has no plan yet. ``since`` is the time when it began."""

    run_id: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsSeen:
    """The latest runs of a replication, newest first. ``paused``: its schedule is switched off."""

    runs: tuple[RunFacts, ...] = ()
    planning: Planning | None = None
    paused: bool = False


def run_causes(replication: Replication, seen: RunsSeen, now: datetime) -> Iterator[Cause]:
    """The causes of alerts in the runs and in the schedule."""
    live = [run for run in seen.runs if run.record.kind != BACKFILL]
    yield from _of_newest(replication, live)
    yield from _of_backfills(replication, seen.runs, now)
    yield from _stalled(replication, seen, now)
    yield from _missed(replication, seen, live, now)


def _of_newest(replication: Replication, live: Sequence[RunFacts]) -> Iterator[Cause]:
    """The death or the failures of the newest run that is not at work."""
    run = next((run for run in live if run.life is not Life.AT_WORK), None)
    if run is None or run.succeeded:
        return
    if run.life in (Life.DIED, Life.UNKNOWN):
        yield _died(replication, run)
    else:
        yield from failures(run)


def _of_backfills(replication: Replication, runs: Sequence[RunFacts], now: datetime) -> Iterator[Cause]:
    """The failure of the newest backfill, for a day: a failed backfill need not be repeated."""
    run = next((run for run in runs if run.record.kind == BACKFILL and run.life is not Life.AT_WORK), None)
    if run is None or run.succeeded or now - run.ended_at >= _ONE_DAY:
        return
    whole = _died(replication, run) if run.life is not Life.ENDED else _failed(run, "", run.failed)
    yield replace(whole, key=CauseKey(whole.key.kind, BACKFILL))


def _died(replication: Replication, run: RunFacts) -> Cause:
    return Cause(
        key=CauseKey(Kind.DIED),
        what=f"run {run.record.run_id} ended without a result: {run.why or 'its process is gone'}",
        remedy="look at its log; the next run continues where it stopped. Without a schedule, run again",
        places=tuple(f"{outcome.key.source} {outcome.range}" for outcome in run.failed),
        at=run.moved_at,
        # It is not certain that it is gone: a task that waits for its turn looks the same.
        patience=0 if run.life is Life.DIED else replication.alerts.stalled_after,
        run_id=run.record.run_id,
    )


def failures(run: RunFacts) -> Iterator[Cause]:
    """One cause for each topic with failed ranges, or one for the whole run."""
    by_topic = sorted(run.failed, key=lambda outcome: (outcome.key.source, outcome.range.from_))
    for topic, outcomes in itertools.groupby(by_topic, key=lambda outcome: outcome.key.source.topic):
        yield _failed(run, topic, tuple(outcomes))
    if not run.failed:
        yield _failed(run, "", ())


def _failed(run: RunFacts, subject: str, outcomes: Sequence[RangeOutcome]) -> Cause:
    errors = list(dict.fromkeys(outcome.error or "" for outcome in outcomes))
    remedies = list(dict.fromkeys(outcome.remedy or _RUN_AGAIN for outcome in outcomes)) or [_RUN_AGAIN]
    more = f" (and {len(errors) - 1} other errors)" if len(errors) > 1 else ""
    partitions = len({outcome.key for outcome in outcomes})
    which = f"{partitions} partition{'s' if partitions != 1 else ''} of {subject}" if subject else "it"
    why = f"{errors[0]}{more}" if errors else run.why or "its log says why"
    return Cause(
        key=CauseKey(Kind.FAILED, subject),
        what=f"run {run.record.run_id} failed for {which}: {why}",
        remedy="; ".join(remedies[:3]),
        places=tuple(f"{outcome.key.source} {outcome.range}" for outcome in outcomes),
        at=run.ended_at,
        run_id=run.record.run_id,
    )


def _stalled(replication: Replication, seen: RunsSeen, now: datetime) -> Iterator[Cause]:
    """A run that is at work, without a commit or a verification for too long."""
    patience = timedelta(seconds=replication.alerts.stalled_after)
    planning = seen.planning
    if planning is not None and now - planning.since > patience:
        yield _no_progress(planning.run_id, planning.since, "it has not made its plan yet", ())
    for run in seen.runs:
        progress = run.progress
        # Reading a range back shows no progress until its end, and takes no longer than copying it did.
        reading = timedelta(seconds=progress.seconds) if progress and progress.reading_back else timedelta()
        if run.life is Life.AT_WORK and now - run.moved_at > patience + reading:
            place = (f"{progress.slowest} ({progress.slowest_percent}%)",) if progress and progress.slowest else ()
            standing = str(progress) if progress else "copying has not started"
            yield _no_progress(run.record.run_id, run.moved_at, standing, place)


def _no_progress(run_id: str, since: datetime, standing: str, places: tuple[str, ...]) -> Cause:
    return Cause(
        key=CauseKey(Kind.STALLED),
        what=f"run {run_id} has made no progress since {to_text(since)} and is still trying; {standing}",
        remedy="look at the log of the run for what it waits for: brokers, an open transaction, a full disk, a network",
        places=places,
        at=since,
        run_id=run_id,
    )


def _missed(replication: Replication, seen: RunsSeen, live: Sequence[RunFacts], now: datetime) -> Iterator[Cause]:
    """The schedule was due, and no run began since. A replication that never ran has not been started yet."""
    busy = seen.planning is not None or any(run.life is Life.AT_WORK for run in seen.runs)
    due = last_due(replication.schedule, now - timedelta(seconds=replication.alerts.stalled_after))
    if seen.paused or busy or due is None or not live:
        return
    newest = live[0].record.created_at
    if newest < due:
        yield Cause(
            key=CauseKey(Kind.MISSED),
            what=(
                f"the run that was due at {to_text(due)} (schedule {replication.schedule}) did not start; the last run"
                f" began at {to_text(newest)}"
            ),
            remedy="check that Airflow's scheduler runs, that the DAG is not paused, and that a task slot is free",
            at=due,
        )


def ledger_causes(replication: Replication, obstacle: ReplicationError | None) -> Iterator[Cause]:
    """A ledger that cannot be written, if there is an obstacle."""
    if obstacle is not None:
        yield Cause(
            key=CauseKey(Kind.LEDGER),
            what=f"{obstacle.what}. Nothing can be copied or verified",
            remedy=obstacle.remedy,
            patience=replication.alerts.stalled_after if obstacle.retriable else 0,
        )


def partition_causes(replication: Replication, rows: Iterable[PartitionStatus]) -> Iterator[Cause]:
    """Gaps, refusals and quarantined records, one cause for each topic; and the lag, one cause for all partitions
    beyond the limit.
    """
    rows = list(rows)
    refused = [row for row in rows if row.plan.refused and row.plan.state is not State.SEALED]  # that was meant to be
    for kind in (Kind.GAP, Kind.REFUSED):
        for topic, some in _of_topics(row for row in refused if (row.plan.state in _GAPS) == (kind is Kind.GAP)):
            yield _refused(replication, kind, topic, some)
    yield from foreseen_losses(rows)
    yield from _removed(rows)
    yield from _quarantined(replication, rows)
    yield from _repaired(rows)
    lag = replication.alerts.lag
    late = {row.source: why for row in rows if not row.plan.refused and (why := beyond(replication, row))}
    if late:
        limits = [f"{lag.records} offsets"] if lag.records is not None else []
        limits += [duration(lag.seconds)] if lag.seconds is not None else []
        which = f"{len(late)} partitions are" if len(late) > 1 else "1 partition is"
        yield Cause(
            key=CauseKey(Kind.LAG),
            what=f"{which} further behind than alerts.lag allows ({' or '.join(limits)})",
            remedy="check that runs start and end in time; give them more task slots, or raise the limit",
            places=tuple(f"{partition} {why}" for partition, why in sorted(late.items())),
        )


def _of_topics(rows: Iterable[PartitionStatus]) -> Iterator[tuple[str, list[PartitionStatus]]]:
    for topic, group in itertools.groupby(sorted(rows, key=lambda row: row.key), key=lambda row: row.topic):
        yield topic, list(group)


def _refused(replication: Replication, kind: Kind, topic: str, rows: Sequence[PartitionStatus]) -> Cause:
    away = all(row.plan.state is State.UNREADABLE for row in rows)  # a leader may come back without help
    first = rows[0].plan
    others = f" (and {len(rows) - 1} other partitions of {topic})" if len(rows) > 1 else ""
    return Cause(
        key=CauseKey(kind, topic),
        what=f"{first.what}{others}",
        remedy=first.remedy,
        places=tuple(f"{row.source} at {row.plan.position}" for row in rows),
        patience=replication.alerts.stalled_after if away else 0,
    )


def foreseen_losses(rows: Iterable[PartitionStatus]) -> Iterator[Cause]:
    """Records that the source will drop before they are copied, one cause for each topic."""
    for losses in by_topic(row.loss for row in rows if row.loss):
        topic = losses[0].key.source.topic
        yield Cause(
            key=CauseKey(Kind.RETENTION, topic),
            what=f"{losses[0].what}{others(losses)}",
            remedy=losses[0].remedy,
            places=tuple(f"{loss.key.source} at {loss.first}" for loss in losses),
        )


def _removed(rows: Iterable[PartitionStatus]) -> Iterator[Cause]:
    """Copies that are no longer on the target, one cause for each topic."""
    for topic, of_topic in _of_topics(row for row in rows if row.plan.missed):
        others = f" (and of {len(of_topic) - 1} other partitions of {topic})" if len(of_topic) > 1 else ""
        yield Cause(
            key=CauseKey(Kind.REMOVED, topic),
            what=f"{of_topic[0].error}{others}",
            remedy=of_topic[0].plan.remedy,
            places=tuple(f"{row.source} {row.plan.missed}" for row in of_topic),
        )


def _quarantined(replication: Replication, rows: Iterable[PartitionStatus]) -> Iterator[Cause]:
    """Quarantined records that wait for a decision, one cause for each topic."""
    for topic, of_topic in _of_topics(row for row in rows if row.waiting):
        count = sum(row.waiting for row in of_topic)
        yield Cause(
            key=CauseKey(Kind.QUARANTINED, topic),
            what=(
                f"{count} record{'s' if count != 1 else ''} of {topic} could not be copied: in"
                f" {replication.quarantine_topic}, until somebody retries or discards them"
            ),
            remedy=f"'{failed_list(replication.name)}' says why; then 'kafka-replication failed retry' or 'discard'",
            places=tuple(f"{row.source}: {row.waiting}" for row in of_topic),
        )


def _repaired(rows: Iterable[PartitionStatus]) -> Iterator[Cause]:
    """Copies that a run took back within a day, because the target had lost them, one cause for each topic."""
    for topic, of_topic in _of_topics(row for row in rows if row.repaired):
        yield Cause(
            key=CauseKey(Kind.REPAIRED, topic),
            what=f"the target had lost verified copies of {topic}, and a run copies them again",
            remedy=(
                "find out what truncated the target's log: a disk, an unclean election. 'kafka-replication ledger FILE'"
                " has each receipt that was taken back; with mend: report a run only tells"
            ),
            places=tuple(f"{row.source} {text}" for row in of_topic for text in row.repaired),
        )


def is_first_copy(records: Sequence[RunRecord]) -> bool:
    """True if the first copy of everything is still to be made, or is being made. ``records``: newest first."""
    live = [record for record in records if record.kind != BACKFILL]
    return not any(record.state in ENDED_WELL for record in live) and (not live or live[0].state == "planned")


def beyond(replication: Replication, row: PartitionStatus) -> str | None:
    """The distance of a partition beyond ``alerts.lag``; None if it is within, or if only backfills write here."""
    if row.target_topic != replication.target_topic(row.topic):
        return None
    limit = replication.alerts.lag
    parts = []
    if limit.records is not None and (row.lag or 0) > limit.records:
        parts.append(f"is {row.lag} offsets behind, at {row.watermark or row.plan.start}")
    if limit.seconds is not None and (row.lag_seconds or 0) > limit.seconds:
        parts.append(f"has a record of {duration(row.lag_seconds or 0)} ago that is not verified")
    return " and ".join(parts) or None


def unverified(row: PartitionStatus, now: datetime) -> str | None:
    """The time for which copied records of a partition have not been verified, if it is too long."""
    if not row.plan.verify:
        return None
    since = datetime.fromisoformat(row.last_verified) if row.last_verified else None
    if since is None:
        return None
    passed = now - since.astimezone(UTC)
    if passed <= _UNVERIFIED:
        return None
    return f"has copied records that are not verified; the last verification was {duration(passed.total_seconds())} ago"


def problems(replication: Replication, rows: Iterable[PartitionStatus], now: datetime) -> list[str]:
    """The reasons for exit code 1 of ``status``: partitions that are refused, miss copies on the target, will lose
    records at the source, are beyond the limit, or are unverified for long.
    """
    return [problem for _, problem in _problems(replication, rows, now)]


def problem_lines(replication: Replication, rows: Iterable[PartitionStatus], now: datetime) -> list[str]:
    """The same for people, with the remedies that need a person, and their commands to paste."""
    lines = []
    for row, problem in _problems(replication, rows, now):
        needs_person = row.answers and row.plan.remedy  # what a cluster, or a foreseen loss, needs is said above
        lines.append(f"PROBLEM {problem}" + (f"\n  remedy: {on_lines(row.plan.remedy)}" if needs_person else ""))
    return lines


def _problems(
    replication: Replication, rows: Iterable[PartitionStatus], now: datetime
) -> Iterator[tuple[PartitionStatus, str]]:
    for row in (one for one in rows if one.plan.state is not State.SEALED):  # a seal was meant to be
        partition = row.source
        if row.plan.refused:
            yield row, f"{partition} {'is refused' if row.answers else 'does not answer'}: {row.plan.what}"
        elif row.plan.missed:
            yield row, f"{partition}: {row.error}"
        elif row.loss:
            yield row, f"{partition}: {row.loss.what}"
        elif why := beyond(replication, row) or unverified(row, now):
            yield row, f"{partition} {why}"


def lasting(observed: Observation, open_: Iterable[OpenCause], runs: Sequence[RunFacts]) -> Observation:
    """``observed``, with the failures that are known only from an earlier message: a run that failed before it had a
    plan is not in the store. Such a failure lasts until a later run has ended without it.

    A backfill's failure ends without a message when it is a day old, because a failed backfill need not be repeated.
    So does a repair.
    """
    seen = {cause.key for cause in observed.causes}
    kept, over = set(observed.kept), set(observed.over)
    for row in open_:
        if row.key.kind is Kind.REPAIRED and row.key not in seen and Kind.REPAIRED in observed.judged:
            over.add(row.key)
        if row.key in seen or row.key.kind not in (Kind.FAILED, Kind.DIED):
            continue
        is_backfill = row.key.subject == BACKFILL
        later = _ended_after(row, [run for run in runs if (run.record.kind == BACKFILL) == is_backfill])
        if is_backfill and not (later and later.succeeded):
            over.add(row.key)
        elif not (later and (later.succeeded or row.key.subject)):
            kept.add(row.key)
    return replace(observed, kept=frozenset(kept), over=frozenset(over))


def _ended_after(row: OpenCause, runs: Sequence[RunFacts]) -> RunFacts | None:
    """The newest of these runs that has ended, if it ended after the cause, or is the run of the cause itself."""
    run = next((run for run in runs if run.life is Life.ENDED), None)
    if run is None or (run.ended_at <= row.at and run.record.run_id != row.cause.run_id):
        return None
    return run
