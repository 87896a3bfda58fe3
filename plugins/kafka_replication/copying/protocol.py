"""Copy one bounded offset range exactly once: fence, read the position, copy what is left, chunk by chunk.

This module knows the protocol's order and nothing of how records travel: that is a `CopyEngine`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

from kafka_replication.config import Copy
from kafka_replication.ledger.entries import Ids, KafkaSegments, Position, Receipt, Segment
from kafka_replication.model.errors import Fenced, ForeignWriter, RecordRefused, Refused, ReplicationError, Unreachable
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.model.times import now
from kafka_replication.runtime import failpoints
from kafka_replication.runtime.deadline import Deadline, backoff
from kafka_replication.runtime.events import Event, log_event

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CopyTask:
    """One range of one partition, as the plan bounds it. What is really left of it the ledger says."""

    key: PartitionKey
    range: OffsetRange
    ids: Ids
    generation: int
    run_id: str
    position: int | None = None  # the ledger's as the plan saw it; None: where the range starts


@dataclass(frozen=True, slots=True)
class Chunk:
    """What an engine put into the open transaction."""

    range: OffsetRange
    count: int
    bytes: int
    digest: str
    digest_kind: str
    segments: tuple[Segment, ...]
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class CopyResult:
    """One range's outcome. ``copied`` counts this call's records only; ``error`` is None when all of it is on the
    target.
    """

    key: PartitionKey
    range: OffsetRange
    copied: int = 0
    bytes: int = 0
    chunks: int = 0
    sessions: int = 0
    seconds: float = 0.0
    error: str | None = None
    remedy: str = ""
    fenced: bool = False
    retriable: bool = False


class RefusedAt(RecordRefused):
    """The target refuses the record at source offset ``offset`` (None: one of the chunk's, not known yet which)."""

    def __init__(self, what: str, remedy: str, offset: int | None) -> None:
        super().__init__(what, remedy)
        self.offset = offset


class CopySession(Protocol):
    """One producer life for one partition. Any error ends it; what its open transaction held is aborted."""

    def fence(self) -> None:
        """Fence every earlier copier of this key and settle its open transaction (`init_transactions`)."""

    def position(self) -> Position | None:
        """The ledger's newest position, never a stale one. Only called after `fence`."""

    def check_target(self, position: Position) -> None:
        """Raise ForeignWriter where the target is not what the ledger left behind."""

    def check_ids(self, ids: Ids) -> None:
        """Raise Refused unless both topics still are the ones with these ids."""

    def copy_chunk(self, left: OffsetRange, position: Position) -> Chunk:
        """Begin a transaction and put the next chunk of ``left`` into it; the chunk's range starts at
        ``left.from_``.
        """

    def check_between(self, first: int) -> None:
        """Raise ForeignWriter where somebody's record lies between what was known and ``first``, where the open
        transaction begins.
        """

    def commit(self, position: Position, receipt: Receipt) -> None:
        """Add both entries to the transaction and commit it. Returning means: committed."""


class CopyEngine(Protocol):
    """Makes sessions; ``probing`` ones find out which single record the target refuses."""

    name: str

    def session(self, task: CopyTask, *, probing: bool = False) -> AbstractContextManager[CopySession]: ...


Progress = Callable[[CopyTask, CopyResult], None]


@dataclass(slots=True)
class Copier:
    """Copies one range, in as many sessions as it takes: until ``settings.attempts`` in a row copied nothing, or the
    ``deadline``.
    """

    engine: CopyEngine
    settings: Copy
    progress: Progress = lambda task, result: None
    pause: Callable[[float], None] = time.sleep
    deadline: Deadline = field(default_factory=Deadline)
    _result: CopyResult = field(init=False)

    def copy(self, task: CopyTask) -> CopyResult:
        """Never raises a ReplicationError: what went wrong is in the result, for the other ranges go on."""
        started = time.monotonic()
        self._result = CopyResult(task.key, task.range)
        try:
            self._sessions(task)
        except ReplicationError as e:
            self._result = replace(
                self._result,
                error=e.what,
                remedy=e.remedy,
                fenced=isinstance(e, Fenced),
                retriable=e.retriable or isinstance(e, Fenced),
            )
        self._result = replace(self._result, seconds=round(time.monotonic() - started, 3))
        return self._result

    def _sessions(self, task: CopyTask) -> None:
        """New sessions until the range is copied. A refusal that names no record is repeated once, probing for it."""
        probing, failures, chunks = False, 0, self._result.chunks
        while True:
            self.deadline.check(f"copying {task.key.source} {task.range}")
            try:
                self._session(task, probing=probing)
                return
            except RefusedAt as refused:
                if probing or refused.offset is not None:
                    self._copy_before(task, refused)
                    raise
                probing = True
            except Unreachable as e:
                failures = 1 if self._result.chunks > chunks else failures + 1
                chunks = self._result.chunks
                self._wait(task, failures, e)

    def _wait(self, task: CopyTask, failures: int, error: Unreachable) -> None:
        """Pause after so many failures in a row. Raises the error where that was the last attempt, OutOfTime."""
        if failures >= self.settings.attempts:
            raise error
        if self.deadline.left <= backoff(failures):
            raise self.deadline.over(f"copying {task.key.source} {task.range}", error) from error
        message = "%s %s: a session ended (%s); starting a new one"
        log_event(log, logging.WARNING, Event.COPY_SESSION_ENDED, message, task.key.source, task.range, error)
        self.pause(backoff(failures))

    def _copy_before(self, task: CopyTask, refused: RefusedAt) -> None:
        """Bring everything before the refused record to the target: nothing is passed over, nothing waits for it."""
        if refused.offset is not None and refused.offset > task.range.from_:
            # Sessions of its own: an earlier record, whose refusal comes later, may hide behind this one.
            self._sessions(replace(task, range=OffsetRange(task.range.from_, refused.offset)))

    def _session(self, task: CopyTask, *, probing: bool = False) -> None:
        self._result = replace(self._result, sessions=self._result.sessions + 1)
        failpoints.reached("P0")
        with self.engine.session(task, probing=probing) as session:
            session.fence()
            position = session.position()
            _check_position(task, position)
            assert position is not None
            session.check_ids(task.ids)  # a deleted topic must not look like one that does not answer
            _check_target(task, session, position)
            while left := position.left_of(task.range):
                self.deadline.check(f"copying {task.key.source} {left[0]}")
                position = self._chunk(task, session, left[0], position)

    def _chunk(self, task: CopyTask, session: CopySession, left: OffsetRange, position: Position) -> Position:
        chunk = session.copy_chunk(left, position)
        if chunk.segments:
            session.check_between(min(segment.first for segment in chunk.segments))
        target_end = max((segment.last + 1 for segment in chunk.segments), default=0)
        moved = position.after(chunk.range, chunk.leader_epoch, target_end)
        receipt = Receipt(
            generation=task.generation,
            range=chunk.range,
            count=chunk.count,
            bytes=chunk.bytes,
            digest=chunk.digest,
            digest_kind=chunk.digest_kind,
            engine=self.engine.name,
            placement=KafkaSegments(chunk.segments),
            ids=task.ids,
            run_id=task.run_id,
            time=now(),
        )
        failpoints.reached("P1")
        session.check_ids(task.ids)
        session.commit(moved, receipt)
        failpoints.reached("P3")
        done = self._result
        self._result = replace(
            done, copied=done.copied + chunk.count, bytes=done.bytes + chunk.bytes, chunks=done.chunks + 1
        )
        self.progress(task, self._result)
        return moved


def _check_target(task: CopyTask, session: CopySession, position: Position) -> None:
    """What a newer copier of ours wrote since the position was read is no foreign record.

    Raises Fenced, ForeignWriter.
    """
    try:
        session.check_target(position)
    except ForeignWriter as e:
        if session.position() != position:
            raise Fenced(
                f"{task.key.source}: a newer copier took over", "run again when the other run has ended"
            ) from e
        raise


def _check_position(task: CopyTask, position: Position | None) -> None:
    """Refuse to copy from a position that is not the plan's."""
    at = task.key.source
    if position is None:
        raise Refused(
            f"{at}: the ledger has no position for {task.key}, yet it was opened",
            "bring back the ledger topics of the target",
        )
    if position.generation != task.generation:
        raise Refused(
            f"{at}: the plan is for generation {task.generation}, the ledger is at {position.generation}", "plan again"
        )
    if position.ids != task.ids:
        raise Refused(
            f"{at}: the ledger speaks of {position.ids}, the plan of {task.ids}: a topic was re-created", "plan again"
        )
    planned = task.range.from_ if task.position is None else task.position
    if position.next_offset < planned and position.left_of(OffsetRange(position.next_offset, planned)):
        raise Refused(
            f"{at}: the ledger's position {position.next_offset} lies below {planned}, where it was when {task.range}"
            " was planned: the ledger went back",
            "find out what restored the ledger topics to an older state, then plan again",
        )
