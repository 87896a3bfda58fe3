"""The runs of a replication that are at work, and the state of the latest ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafka_replication import documents
from kafka_replication.model.times import to_text
from kafka_replication.reporting.run.progress import Progress
from kafka_replication.watermarks.store import WatermarkStore
from kafka_replication.watermarks.topics import TargetTopics
from kafka_replication.watermarks.values import Lease, RunRecord

RECENT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAtWork:
    """A run that has a lease, and its progress; None if copying has not started."""

    run_id: str
    progress: Progress | None
    topics: TargetTopics = TargetTopics.ALL

    @classmethod
    def of(cls, lease: Lease, run: RunRecord | None) -> RunAtWork:
        """The run that owns the lease, with the store's record of it."""
        progress = Progress.from_json(run.progress) if run and run.progress else None
        return cls(run_id=lease.owner, progress=progress, topics=lease.topics)

    def as_json(self) -> documents.RunAtWorkRow:
        return {
            "run_id": self.run_id,
            "progress": self.progress.as_json() if self.progress else None,
            "target_topics": None if self.topics.all_but else sorted(self.topics.names),
        }

    def __str__(self) -> str:
        return f"run {self.run_id}: {self.progress or 'copying has not started'}"


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run: ``running`` or ``expected`` (its next task has not begun) while it lives, else its end."""

    run: RunRecord
    at_work: bool

    @property
    def died(self) -> bool:
        return self.run.state == "died" or (self.run.state == "planned" and not self.run.alive)

    @property
    def state(self) -> str:
        if self.died:
            return "died"
        if self.run.state == "planned":
            return "running" if self.at_work else "expected"
        return self.run.state

    def as_json(self) -> documents.RecentRunRow:
        finished = self.run.finished_at
        return {
            "run_id": self.run.run_id,
            "kind": self.run.kind,
            "state": self.state,
            "planned_at": to_text(self.run.created_at),
            "ended_at": to_text(finished) if finished else None,
        }

    def __str__(self) -> str:
        return f"run {self.run.run_id}: {self.state}" + (
            "; the next run continues where it stopped" if self.died else ""
        )


def runs_at_work(store: WatermarkStore, replication: str) -> list[RunAtWork]:
    """The runs that have a lease. The newest lease comes first."""
    held = [lease for lease in store.leases(replication) if not lease.waiting]
    return [RunAtWork.of(lease, store.run(lease.owner)) for lease in reversed(held)]


def recent_runs(store: WatermarkStore, replication: str) -> list[RunState]:
    """The latest runs, newest first."""
    held = {lease.owner for lease in store.leases(replication) if lease.holder and not lease.waiting}
    return [RunState(run, run.run_id in held) for run in store.runs(replication, RECENT)]
