"""The runs of a replication that are at work, and the state of the latest ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_replication.documents import StatusRow
from kafka_replication.model.targets import Promise
from kafka_replication.model.times import to_text
from kafka_replication.reporting.run.progress import Progress
from kafka_replication.watermarks.values import Lease, RunRecord

if TYPE_CHECKING:
    from kafka_replication.store import WatermarkStore

RECENT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAtWork:
    """A run that works now; ``target_topics`` is null for all topics, ``progress`` before it copies."""

    run_id: str
    progress: Progress | None
    target_topics: list[str] | None = None

    @classmethod
    def of(cls, lease: Lease, run: RunRecord | None) -> RunAtWork:
        """The run that owns the lease, with the store's record of it."""
        progress = Progress.from_json(run.progress) if run and run.progress else None
        topics = None if lease.topics.all_but else sorted(lease.topics.names)
        return cls(run_id=lease.owner, progress=progress, target_topics=topics)

    def __str__(self) -> str:
        return f"run {self.run_id}: {self.progress or 'copying has not started'}"


def state_of(run: RunRecord, *, at_work: bool = False) -> str:
    """The state of a run for people. One that is planned is ``running``, ``expected`` (before its next task) or
    ``died``.
    """
    if run.state != "planned":
        return run.state
    return "running" if at_work else "expected" if run.alive else "died"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRunRow:
    """One of the latest runs. ``state``: ``running``, ``expected`` (its next task has not begun), ``died``, or how it
    ended.
    """

    run_id: str
    kind: str
    state: str
    planned_at: str
    ended_at: str | None

    @classmethod
    def of(cls, run: RunRecord, *, at_work: bool) -> RecentRunRow:
        return cls(
            run_id=run.run_id,
            kind=run.kind,
            state=state_of(run, at_work=at_work),
            planned_at=to_text(run.created_at),
            ended_at=to_text(run.finished_at) if run.finished_at else None,
        )

    def __str__(self) -> str:
        continues = "; the next run continues where it stopped" if self.state == "died" else ""
        return f"run {self.run_id}: {self.state}{continues}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusDocument:
    """``status``: ``problems`` says why the exit code is 1, ``running`` is the first of ``at_work``, ``promise`` as in
    ``run``.
    """

    replication: str
    promise: Promise
    running: RunAtWork | None
    at_work: list[RunAtWork]
    runs: list[RecentRunRow]
    problems: list[str]
    partitions: Sequence[StatusRow]


def runs_at_work(store: WatermarkStore, replication: str) -> list[RunAtWork]:
    """The runs that have a lease. The newest lease comes first."""
    held = [lease for lease in store.leases(replication) if not lease.waiting]
    return [RunAtWork.of(lease, store.run(lease.owner)) for lease in reversed(held)]


def recent_runs(store: WatermarkStore, replication: str) -> list[RecentRunRow]:
    """The latest runs, newest first."""
    held = {lease.owner for lease in store.leases(replication) if lease.holder and not lease.waiting}
    return [RecentRunRow.of(run, at_work=run.run_id in held) for run in store.runs(replication, RECENT)]
