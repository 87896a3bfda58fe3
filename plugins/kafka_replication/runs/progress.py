"""Shows how far a run is while Spark works: a thread reads what is committed, every few seconds."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

from kafka_replication.documents import as_json
from kafka_replication.ledger.port import Ledger
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.model.times import now
from kafka_replication.reporting.progress import Progress, Speed, Tally, Work
from kafka_replication.runs.run import Run
from kafka_replication.runtime.events import Event, log_event

log = logging.getLogger(__name__)
PAUSE = 2.0  # seconds between two readings
LOG_EVERY = 10.0
LONG = (
    4.0  # seconds for which a transaction may be open in the ledger before it is shown: entries are committed at once
)
PATIENCE = 5.0  # seconds that the end of a job may wait for the last reading
OpenLedger = Callable[[], AbstractContextManager[Ledger]]


class Watch:
    """The progress of one attempt of a run, over all its jobs. ``view`` is the ledger before the first of them."""

    def __init__(self, run: Run, work: Mapping[PartitionKey, Work], view: LedgerView) -> None:
        self._run = run
        self._tally = Tally(work)
        self._started = time.monotonic()
        self._pace = Speed(self._started, self._tally.count(view).offsets_done)
        self._sought = self._tally.unfinished  # whose receipts are looked for
        self._records = self._bytes = 0
        self._throttled = 0.0
        self._receipts_from: dict[int, int] = {}  # for each ledger partition: the receipts below it are counted
        with suppress(ReplicationError):  # else counting starts with the first reading
            self._receipts_from = dict(run.clusters.ledger.receipt_ends())
        self._said = self._stored = self._started
        self._last: Progress | None = None
        self._waiting: str | None = None
        self._moved, self._done = _moved_before(run)
        self._warned = False
        self._hindrance = _Hindrance()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Show the progress while the body runs, and once more when it has ended well.

        Nothing that goes wrong here stops the body. A reading that hangs, because the target does not answer, is left
        behind: its thread ends by itself, and says nothing any more.
        """
        job = _Job(self._run.clusters.target.follower())
        thread = threading.Thread(target=self._follow, args=(job,), name="progress", daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            job.abandon()
            thread.join(PATIENCE / 10)
            raise
        job.ended.set()
        thread.join(PATIENCE)
        job.abandon()

    def _follow(self, job: _Job) -> None:
        with ExitStack() as stack:
            ledger: Ledger | None = None
            ended = False
            while not ended:
                ended = job.ended.wait(PAUSE)
                if job.abandoned:
                    return
                try:
                    ledger = ledger or stack.enter_context(job.open_ledger())
                    progress = self._read(ledger)
                    if not job.abandoned:
                        self._publish(progress, last=ended)
                except Exception as problem:  # noqa: BLE001 - the run must not fail because nobody sees it work
                    self._warn(problem)

    def _read(self, ledger: Ledger) -> Progress:
        sought = self._sought
        standing = self._tally.count(ledger.view())
        if not self._receipts_from:
            self._receipts_from = dict(ledger.receipt_ends())
        # After the view, so that every receipt of what it shows as done is counted, and then never looked for again.
        read = ledger.receipts({key: self._receipts_from[key.ledger_partition] for key in sought})
        self._sought = self._tally.unfinished
        if any(read.stored.values()):  # perhaps newer than the view: a line counts no records without their offsets
            standing = self._tally.count(ledger.view())
        for key in sought:
            for stored in read.stored[key]:
                receipt = stored.receipt
                if receipt.run_id == self._run.run_id and receipt.generation == self._tally.generation(key):
                    self._records += receipt.copied
                    self._bytes += receipt.bytes
                    self._throttled += receipt.throttled
        self._receipts_from |= read.ends
        moment = time.monotonic()
        progress = self._pace.progress(moment, standing, self._records, self._bytes, self._throttled)
        if _committed(progress) != _committed(self._last):
            return progress
        return replace(progress, waiting=self._hindrance.look(ledger, moment))

    def _publish(self, progress: Progress, *, last: bool) -> None:
        moment = time.monotonic()
        is_new = _committed(progress) != _committed(self._last) or progress.waiting != self._waiting
        if last or is_new or moment - self._stored >= LOG_EVERY:
            done = progress.ranges_done, progress.offsets_done
            if done != self._done:
                self._moved, self._done = now(), done
            document = {**as_json(progress), "at": now(), "moved": self._moved}
            self._run.store.record_progress(self._run.run_id, json.dumps(document))
            self._stored, self._last = moment, progress
        if progress.waiting is not None and progress.waiting != self._waiting:
            log.warning("%s: waits for %s", self._run.replication.name, progress.waiting)
        self._waiting = progress.waiting
        if self._run.show is not None:
            self._run.show(progress)
        elif last or moment - self._said >= LOG_EVERY:
            self._said = moment
            log_event(log, logging.INFO, Event.PROGRESS, "%s: %s", self._run.replication.name, progress)

    def _warn(self, problem: Exception) -> None:
        """Once: whatever it is, the run itself meets it too, or does not need to care."""
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        log.log(level, "%s: the progress cannot be shown now: %s", self._run.replication.name, problem)


class _Hindrance:
    """A transaction in the ledger that has been open for a while: it hides the entries that workers have to read."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, tuple[int, float]] = {}  # where it begins, and when that was first seen
        self._named: dict[tuple[TopicPartition, int], str] = {}

    def look(self, ledger: Ledger, moment: float) -> str | None:
        """The progress, or None; ``moment`` on a monotonic clock."""
        hidden = ledger.hidden()
        first = {at: (offset, moment) for at, offset in hidden.items()}
        self._seen = {at: one if (one := self._seen.get(at, new))[0] == new[0] else new for at, new in first.items()}
        for at, (offset, since) in sorted(self._seen.items()):
            if moment - since >= LONG:
                if (at, offset) not in self._named:
                    self._named = {(at, offset): ledger.hidden_by(at)}
                return f"the end of a transaction that hides {at} from {offset} on{self._named[at, offset]}"
        return None


@dataclass(slots=True)
class _Job:
    """The state that the thread of one job shares with the run."""

    open_ledger: OpenLedger
    ended: threading.Event = field(default_factory=threading.Event)
    abandoned: bool = False

    def abandon(self) -> None:
        """Nothing is shown any more."""
        self.abandoned = True
        self.ended.set()


def _moved_before(run: Run) -> tuple[str, tuple[int, int]]:
    """The last time at which an earlier attempt of this run did something, and its counts then: another attempt that
    does nothing is no progress.
    """
    with suppress(ReplicationError, ValueError, KeyError, TypeError):
        stored = run.store.run(run.run_id)
        if stored and stored.progress:
            document = json.loads(stored.progress)
            return str(document["moved"]), (document["ranges_done"], document["offsets_done"])
    return now(), (-1, -1)


def _committed(progress: Progress | None) -> tuple[int, ...]:
    return () if progress is None else (progress.ranges_done, progress.offsets_done, progress.records, progress.bytes)
