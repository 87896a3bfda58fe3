"""One row for each replication: where it stands, in one word, and what a person has to do. Reads the store only.

The rows of all replications as a table and as the document of ``overview``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kafka_replication.alerting.open_causes import Kind, OpenCause
from kafka_replication.config import Replication
from kafka_replication.config.names import next_due
from kafka_replication.model.times import amount, duration, to_text
from kafka_replication.reporting.progress import Progress, state_of
from kafka_replication.reporting.table import Columns, table
from kafka_replication.watermarks.sight import UNKNOWN, Drill, Facts, Lag, Seen, Work
from kafka_replication.watermarks.values import SEALED, RunRecord

if TYPE_CHECKING:
    from kafka_replication.store import WatermarkStore


OLD: Final = timedelta(minutes=10)  # Airflow's watch looks every minute
BACKFILL: Final = "backfill"  # the kind of its runs
_LOOK: Final = (
    "switch the DAG replications.watch on and see that it succeeds, or let `kafka-replication watch FILE` run;"
    " `kafka-replication status FILE` asks the clusters now"
)
_AGAIN: Final = "then run again: only what is left is repeated"
_REMEDIES: Final = {
    "failed": f"the page of the run, and its report, name each range with the reason and the remedy; {_AGAIN}",
    "died": f"the log of its last task or command says how far it came; {_AGAIN}",
}
_LATE: Final = frozenset({Kind.LAG, Kind.MISSED, Kind.RETENTION, Kind.DRILL_WORSE, Kind.DRILL_OVERDUE})


class State(StrEnum):
    """The state in one word, in the order in which a replication needs a person."""

    FAILING = "failing"  # an alert is open, or the newest run failed
    LATE = "late"  # behind its limit, a run or a drill was missed or showed that, or the source will soon drop records
    WAITING = "waiting"  # records were set aside and wait for a decision
    UNSEEN = "unseen"  # nobody has looked for ten minutes
    RUNNING = "running"
    SEALED = "sealed"  # the newest run was refused, because the direction is sealed
    BEHIND = "behind"  # the next run copies what is new
    PAUSED = "paused"
    IN_SYNC = "in sync"

    @property
    def rank(self) -> int:
        return list(State).index(self)

    @property
    def needs_person(self) -> bool:
        return self in (State.FAILING, State.LATE, State.WAITING, State.UNSEEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A run at work. ``at`` is the time of its progress; both are None until it has begun to copy."""

    run_id: str
    kind: str
    progress: Progress | None
    at: datetime | None

    @classmethod
    def of(cls, record: RunRecord) -> Running:
        progress = Progress.from_json(record.progress) if record.progress else None
        at = datetime.fromisoformat(json.loads(record.progress)["at"]) if progress and record.progress else None
        return cls(run_id=record.run_id, kind=record.kind, progress=progress, at=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One replication. ``lag`` and ``partitions`` were measured at ``measured_at``, ``work`` at its own time.

    ``what``, ``remedy`` and ``since`` are of the worst open alert, or say why it needs a person without one; empty if
    nobody is needed. ``next_run`` is None for runs by hand, and while the schedule is switched off.
    """

    replication: str
    state: State
    facts: Facts | None = None
    lag: Lag = UNKNOWN
    partitions: int = 0
    measured_at: datetime | None = None
    last_verified: datetime | None = None  # when a watermark moved last
    work: Work | None = None
    what: str = ""
    remedy: str = ""
    since: datetime | None = None
    causes: tuple[OpenCause, ...] = ()  # the open alerts, the worst first
    undecided: int = 0  # records that were set aside and wait for a decision
    running: tuple[Running, ...] = ()
    newest: RunRecord | None = None
    next_run: datetime | None = None
    paused: bool = False
    drill: Drill | None = None  # the last one

    @property
    def source(self) -> str:
        return self.facts.source if self.facts else ""

    @property
    def target(self) -> str:
        return self.facts.target if self.facts else ""

    def is_found_by(self, words: str) -> bool:
        """True if each of these words is a part of the name, the route, the state or a topic."""
        topics = self.facts.topics if self.facts else ()
        text = " ".join((self.replication, self.source, self.target, self.state, *topics)).lower()
        return all(word in text for word in words.lower().split())


def facts_of(replication: Replication) -> Facts:
    """The parts of the replication's file that a page shows."""
    return Facts(
        source=replication.source.connection,
        target=replication.target.connection,
        schedule=replication.schedule,
        topics=tuple(replication.topics.include),
        by_interval=replication.progress == "interval",
    )


def rows(store: WatermarkStore, now: datetime, names: Collection[str] | None = None) -> list[Row]:
    """The rows of these replications, or of all that the store knows; first those that need a person.

    Raises Unreachable, Refused.
    """
    return in_order(row_of(seen, now) for seen in store.front(names))


def in_order(found: Iterable[Row]) -> list[Row]:
    """First what needs a person; within one state the largest lag."""
    return sorted(found, key=lambda row: (row.state.rank, -(row.lag.seconds or 0.0), row.replication))


def row_of(seen: Seen, now: datetime) -> Row:
    """The row of one replication at ``now``."""
    standing, facts = seen.standing, seen.standing.facts
    causes = tuple(sorted((cause for cause in seen.causes if cause.is_told), key=lambda cause: cause.key.kind.rank))
    paused = seen.look is not None and seen.look.paused
    state = _state(seen, causes, now)
    what, remedy, since = _trouble(seen, causes, state, now)
    return Row(
        replication=standing.replication,
        state=state,
        facts=facts,
        lag=standing.lag,
        partitions=standing.partitions,
        measured_at=standing.at,
        last_verified=seen.last_verified,
        work=standing.work,
        what=what,
        remedy=remedy,
        since=since,
        causes=causes,
        undecided=seen.undecided,
        running=tuple(Running.of(record) for record in seen.at_work),
        newest=seen.newest,
        next_run=None if paused or facts is None else next_due(facts.schedule, now),
        paused=paused,
        drill=seen.drill,
    )


def has_failed(run: RunRecord) -> bool:
    """True if the run failed or died. Not for a backfill, which need not be repeated: an alert says what matters."""
    ended_badly = run.state in ("failed", "died") or (run.state == "planned" and not run.alive)
    return ended_badly and run.kind != BACKFILL


def is_old(measured_at: datetime | None, now: datetime) -> bool:
    """True for a number of a look that should have been renewed since."""
    return measured_at is None or now - measured_at > OLD


def _trouble(seen: Seen, causes: Sequence[OpenCause], state: State, now: datetime) -> tuple[str, str, datetime | None]:
    """The trouble, its remedy, and since when it lasts: of the worst alert, else of what is seen without one."""
    if causes:
        return causes[0].cause.what, causes[0].cause.remedy, causes[0].since
    run, looked_at = seen.newest, seen.standing.at
    if state is State.FAILING and run is not None:
        ended = state_of(run)
        return f"run {run.run_id} {ended}", _REMEDIES[ended], run.finished_at or run.created_at
    if state is not State.UNSEEN:
        return "", "", None
    if looked_at is None:
        return "`watch` has not checked it yet, so no alert can be sent", _LOOK, None
    if is_old(looked_at, now):
        return "nobody has looked at it for ten minutes, so its numbers are old and no alert comes", _LOOK, looked_at
    remedy = "see which partition has no lag; `kafka-replication check FILE` asks both clusters and names the reason"
    return "its lag is not known: a partition of the source did not answer the last look", remedy, looked_at


def _state(seen: Seen, causes: Collection[OpenCause], now: datetime) -> State:
    kinds = {cause.key.kind for cause in causes} - {Kind.REPAIRED}
    if kinds - _LATE - {Kind.QUARANTINED} or (seen.newest and has_failed(seen.newest)):
        return State.FAILING
    if kinds & _LATE:
        return State.LATE
    if kinds:
        return State.WAITING
    if seen.at_work:
        return State.RUNNING
    if seen.newest and seen.newest.state == SEALED:
        return State.SEALED
    if is_old(seen.standing.at, now) or seen.standing.lag.records is None:
        return State.UNSEEN
    if seen.look is not None and seen.look.paused:
        return State.PAUSED
    return State.BEHIND if seen.standing.lag.records else State.IN_SYNC


def overview_table(rows: Sequence[Row], now: datetime) -> str:
    """One line a replication, then what needs a person with its remedy."""
    if not rows:
        return "no replication is known"
    wrong = (
        f"{row.state.upper()} {row.replication}: {row.what}" + (f"\n  remedy: {row.remedy}" if row.remedy else "")
        for row in rows
        if row.state.needs_person
    )
    columns: Columns[Row] = {
        "replication": lambda row: row.replication,
        "state": lambda row: row.state.value,
        "lag": lambda row: None if row.lag.records is None else f"{row.lag.records:,}",
        "behind": lambda row: None if row.lag.seconds is None else duration(row.lag.seconds),
        "measured": lambda row: (
            _ago(row.measured_at, now) + (" (old)" if row.measured_at and is_old(row.measured_at, now) else "")
        ),
        "verified": lambda row: _ago(row.last_verified, now),
        "last copied": lambda row: row.work and _copied(row.work),
        "next run": lambda row: "paused" if row.paused else to_text(row.next_run) if row.next_run else "by hand",
    }
    return "\n".join([table(rows, columns), *wrong])


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewRow:
    """One replication, as the store knows it. ``lag`` (offsets), ``lag_seconds`` and ``partitions`` are of the time
    ``measured_at``; ``last_verified`` is when a watermark moved last.

    ``state``: ``failing``, ``late``, ``waiting`` and ``unseen`` need a person; ``running``, ``sealed``, ``behind``,
    ``paused`` and ``in sync`` do not. ``run_id``, ``records``, ``bytes`` and ``seconds`` are of the newest run that
    copied something. ``what`` and ``remedy`` are of the worst open alert, ``alerts`` is the number of open ones,
    ``undecided`` that of failed records without a decision. What is not known is null. ``next_run`` is null for runs by
    hand, and while the schedule is switched off.
    """

    replication: str
    source: str | None
    target: str | None
    state: str
    needs_person: bool
    partitions: int
    lag: int | None
    lag_seconds: float | None
    measured_at: str | None
    last_verified: str | None
    run_id: str | None
    records: int | None
    bytes: int | None
    seconds: float | None
    what: str | None
    remedy: str | None
    since: str | None
    alerts: int
    undecided: int
    running: list[str]
    next_run: str | None
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewDocument:
    """``overview``: all replications, first those that need a person; ``need_person`` counts these. ``broken`` has the
    mistakes of files that cannot be read.
    """

    replications: list[OverviewRow]
    need_person: int
    broken: tuple[str, ...]


def document(rows: Sequence[Row], broken: tuple[str, ...] = ()) -> OverviewDocument:
    """The document of ``overview``; ``broken`` are the mistakes of files."""
    return OverviewDocument(
        replications=[
            OverviewRow(
                replication=row.replication,
                source=row.source or None,
                target=row.target or None,
                state=row.state.value,
                needs_person=row.state.needs_person,
                partitions=row.partitions,
                lag=row.lag.records,
                lag_seconds=row.lag.seconds,
                measured_at=_text(row.measured_at),
                last_verified=_text(row.last_verified),
                run_id=row.work.run_id if row.work else None,
                records=row.work.records if row.work else None,
                bytes=row.work.bytes if row.work else None,
                seconds=row.work.seconds if row.work else None,
                what=row.what or None,
                remedy=row.remedy or None,
                since=_text(row.since),
                alerts=len(row.causes),
                undecided=row.undecided,
                running=[running.run_id for running in row.running],
                next_run=_text(row.next_run),
                paused=row.paused,
            )
            for row in rows
        ],
        need_person=sum(row.state.needs_person for row in rows),
        broken=broken,
    )


def _copied(work: Work) -> str:
    return f"{work.records:,} records, {amount(work.bytes)}, {duration(work.seconds)}"


def _ago(moment: datetime | None, now: datetime) -> str:
    return f"{duration(max(0.0, (now - moment).total_seconds()))} ago" if moment else "never"


def _text(moment: datetime | None) -> str | None:
    return to_text(moment) if moment else None
