"""Computes the progress of a run from the entries that are committed in the ledger, and the line of text about it. Only
the seconds that are left are an estimate.

The runs of a replication that are at work, and the state of the latest ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from kafka_replication.documents import StatusRow, adapter
from kafka_replication.ledger.entries import Position, Verified
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import Promise
from kafka_replication.model.offsets import Coverage, PartitionKey
from kafka_replication.model.times import amount, duration, to_text
from kafka_replication.planning.plan import Plan
from kafka_replication.watermarks.values import Lease, RunRecord

if TYPE_CHECKING:
    from kafka_replication.store import WatermarkStore


WINDOW = 60.0  # seconds: the speed is that of the last minute, since a chunk may take ten seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The numbers of finished ranges and offsets. A range is finished once it is verified, an offset once it is on the
    target or given up.

    ``slowest`` is the partition with the most offsets left to copy, None if none is left.
    """

    ranges: int
    ranges_done: int
    offsets: int
    offsets_done: int
    slowest: str | None = None
    slowest_percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Counts):
    """The progress of a run. A range is done once it is verified, an offset once it is on the target or given up.

    ``records`` and ``bytes`` are committed by this attempt of the run, ``seconds`` is its age, ``throttled`` the
    time for which quotas or a target that was not ready made its ranges wait, ``waiting`` what it waits for.
    ``seconds_left`` is an estimate; null if there is none.
    """

    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    bytes_per_second: float = 0.0
    seconds_left: float | None = None  # None: not known
    throttled: float = 0.0
    waiting: str | None = None
    percent: int = field(init=False, default=0)  # of the offsets; 100 only if every range is done, too

    def __post_init__(self) -> None:
        share = percent(self.offsets_done, self.offsets, self.ranges_done == self.ranges)
        object.__setattr__(self, "percent", share)

    @property
    def reading_back(self) -> bool:
        """True if everything is on the target, and a part of it is not verified."""
        return self.offsets_done == self.offsets and self.ranges_done < self.ranges

    @classmethod
    def from_json(cls, text: str) -> Progress | None:
        """The progress in this text; None if another version wrote a text that this one does not know."""
        try:
            return adapter(cls).validate_json(text)
        except ValidationError:
            return None

    def __str__(self) -> str:
        parts = [
            f"{self.ranges_done:,} of {self.ranges:,} ranges done",
            f"{self.records:,} records",
            amount(self.bytes),
            f"{amount(self.bytes_per_second)}/s",
            f"{self.percent}%",
        ]
        if self.seconds_left:
            parts.append(f"about {duration(self.seconds_left)} left")
        elif self.reading_back:
            parts.append("all copied, reading back")
        if self.throttled >= 1:
            parts.append(f"quotas or a target that was not ready made it wait {duration(self.throttled)}")
        slowest = "" if self.slowest is None else f"; slowest {self.slowest} ({self.slowest_percent}%)"
        waiting = "" if self.waiting is None else f"; waits for {self.waiting}"
        return ", ".join(parts) + slowest + waiting


def percent(done: int, all_: int, finished: bool) -> int:
    """Rounded down; below 100 until it is finished."""
    share = 100 * done // all_ if all_ else 100
    return 100 if finished and done == all_ else min(share, 99)


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a run in one partition: these offsets are to be on the target and verified."""

    generation: int
    offsets: Coverage


def work_of(plan: Plan) -> dict[PartitionKey, Work]:
    """The work in each partition that the plan does not refuse."""
    return {
        planned.key: Work(planned.generation, Coverage.of(planned.ranges))
        for planned in plan.partitions
        if not planned.refused and any(range_.span for range_ in planned.ranges)
    }


class Tally:
    """Counts the finished part of the work. A partition without a new entry in the ledger is not counted again."""

    def __init__(self, work: Mapping[PartitionKey, Work]) -> None:
        self._work = dict(work)
        self._spans = {key: todo.offsets.span for key, todo in self._work.items()}
        self._seen: dict[PartitionKey, tuple[Position | None, Verified | None]] = {}
        self._to_copy = dict(self._spans)
        self._to_verify = dict(self._spans)
        self._offsets = sum(self._spans.values())

    @property
    def unfinished(self) -> set[PartitionKey]:
        """The partitions that were not done when they were counted last."""
        return {key for key, left in self._to_verify.items() if left}

    def generation(self, key: PartitionKey) -> int | None:
        """The generation that is worked on; None if the partition has no part in the work."""
        return self._work[key].generation if key in self._work else None

    def count(self, view: LedgerView) -> Counts:
        """The standing according to the ledger."""
        for key, todo in self._work.items():
            entries = view.positions.get(key), view.verified.get(key)
            if key not in self._seen or any(a is not b for a, b in zip(self._seen[key], entries, strict=True)):
                self._seen[key] = entries
                self._count(key, todo, view)
        slowest = max(self._to_copy, key=self._to_copy.__getitem__, default=None)
        if slowest is None or not self._to_copy[slowest]:
            slowest = None
        left, span = (self._to_copy[slowest], self._spans[slowest]) if slowest else (0, 0)
        return Counts(
            ranges=len(self._work),
            ranges_done=sum(not left for left in self._to_verify.values()),
            offsets=self._offsets,
            offsets_done=self._offsets - sum(self._to_copy.values()),
            slowest=str(slowest.source) if slowest else None,
            slowest_percent=percent(span - left, span, finished=False) if slowest else None,
        )

    def _count(self, key: PartitionKey, todo: Work, view: LedgerView) -> None:
        account = view.of(key, todo.generation)
        passed = account.verified_or_waived()
        self._to_copy[key] = todo.offsets.subtract(passed.union(account.position.coverage)).span
        self._to_verify[key] = todo.offsets.subtract(passed).span


class Speed:
    """The speed of the work, from samples on a monotonic clock. ``offsets_done`` were done at its start."""

    def __init__(self, started: float, offsets_done: int) -> None:
        self._started = started
        self._samples = deque([(started, offsets_done, 0)])  # the moment, offsets done, bytes

    def progress(self, moment: float, counts: Counts, records: int, size: int, throttled: float = 0.0) -> Progress:
        """The progress at a moment. Moments must not go back."""
        self._samples.append((moment, counts.offsets_done, size))
        while len(self._samples) > 2 and self._samples[1][0] <= moment - WINDOW:
            self._samples.popleft()
        since, offsets, bytes_ = self._samples[0]
        elapsed = moment - since
        done_per_second = (counts.offsets_done - offsets) / elapsed if elapsed > 0 else 0.0
        left = counts.offsets - counts.offsets_done
        if counts.ranges_done == counts.ranges:
            seconds_left: float | None = 0.0
        else:
            seconds_left = left / done_per_second if left and done_per_second > 0 else None
        return Progress(
            **asdict(counts),
            records=records,
            bytes=size,
            seconds=round(max(0.0, moment - self._started), 3),
            bytes_per_second=max(0.0, (size - bytes_) / elapsed) if elapsed > 0 else 0.0,
            seconds_left=seconds_left,
            throttled=round(throttled, 3),
        )


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
