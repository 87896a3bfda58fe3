"""Copy one bounded offset range exactly once: fence, read the position, copy what is left, chunk by chunk.

This module defines the order of the steps. The engine decides how records are read, the sink how they are stored.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kafka_replication.config import Copy
from kafka_replication.config.sections import Failures
from kafka_replication.copying.engine import (
    ChunkSize,
    CopyEngine,
    CopyResult,
    CopyTask,
    EngineTurns,
    Exact,
    HandOver,
    SourceReader,
    Stop,
)
from kafka_replication.copying.sink import RefusedAt, SetAside, Sink, SinkSession
from kafka_replication.ledger.entries import Position, Receipt
from kafka_replication.ledger.view import lost_before
from kafka_replication.model.choices import Turn
from kafka_replication.model.errors import (
    AttemptsExhausted,
    Fenced,
    ForeignWriter,
    Refused,
    ReplicationError,
    TargetLost,
    TooManyFailed,
    Unreachable,
)
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.model.times import now
from kafka_replication.runtime import failpoints
from kafka_replication.runtime.deadline import ATTEMPTS, Deadline, backoff
from kafka_replication.runtime.events import Event, log_event
from kafka_replication.runtime.garbage import let_go
from kafka_replication.verification.digests import key_digest

log = logging.getLogger(__name__)

PATIENCE = 3  # sessions in a row that copied nothing, after which the fallback copies the rest
Progress = Callable[[CopyTask, CopyResult], None]


@dataclass(slots=True, kw_only=True)
class Copier:
    """Copies one range in one or more sessions. Gives up after ``attempts`` sessions in a row that copied
    nothing, or at the ``deadline``, whose clock restarts with each committed chunk.

    What could not be sent in time is sent again in smaller chunks. A record that the target refuses is set aside if the
    policy of ``failures`` says so: a new session goes on, and does not count as an attempt.
    """

    engine: CopyEngine
    why: str = ""  # it begins although another one was chosen
    fallback: CopyEngine | None = None  # copies what the engine hands over; None: the engine copies everything
    exact: Exact | None = None  # makes the engine for records that these two would change
    sink: Sink
    settings: Copy
    progress: Progress = lambda task, result: None
    pause: Callable[[float], None] = time.sleep
    deadline: Deadline = field(default_factory=Deadline)
    attempts: int = ATTEMPTS
    failures: Failures = field(default_factory=Failures)  # what happens to records that cannot be copied
    quarantine_topic: str = ""
    _aside: SetAside = field(init=False)
    _result: CopyResult = field(init=False)
    _size: ChunkSize = field(init=False)
    _turns: EngineTurns = field(init=False)
    _at: tuple[int, str] = field(init=False)  # the first offset that is not copied, and the digest of its record's key
    _attempts: int = field(init=False)  # sessions since the last commit, with the one that committed
    _moved: float = field(init=False)  # when the last chunk was committed, on the monotonic clock

    def copy(self, task: CopyTask) -> CopyResult:
        """Never raises a ReplicationError. The result carries the error, so that other ranges continue."""
        started = self._moved = time.monotonic()
        self._at, self._attempts = (task.range.from_, ""), 0
        self._result, self._size = CopyResult(key=task.key, range=task.range), ChunkSize(self.settings.chunk_records)
        if self.why:
            first = Turn(engine=self.engine.name, range=task.range, why=self.why)
            self._result = self._result.with_turn(first)
        self._turns = EngineTurns(engine=self.engine, fallback=self.fallback, exact=self.exact)
        self._aside = SetAside(
            policy=self.failures, topic=self.quarantine_topic, generation=task.generation, most=task.most_failed
        )
        try:
            self._sessions(task)
        except ReplicationError as e:
            offset, digest = self._at  # where the copy ended
            if isinstance(e, RefusedAt) and e.offset is not None:
                offset, digest = e.offset, e.key_digest
            since = round(time.monotonic() - self._moved, 3)
            self._result = replace(
                self._result,
                error=e.what,
                remedy=e.remedy,
                fenced=isinstance(e, Fenced),
                retriable=e.retriable or isinstance(e, Fenced),
                stop=Stop(offset=offset, key_digest=digest, attempts=self._attempts, seconds=since, error_id=e.id),
            )
            let_go(e)
        self._result = replace(self._result, seconds=round(time.monotonic() - started, 3))
        return self._result

    def _sessions(self, task: CopyTask) -> None:
        """Start sessions until the range is copied, or until all records before the first refused one are copied."""
        failures, chunks = 0, self._result.chunks
        while True:
            self.deadline.check(f"copying {task.key.source} {task.range}")
            try:
                self._by_turns(task)
                return
            except RefusedAt as refused:
                if self._learned(refused):
                    let_go(refused)
                    continue
                if refused.offset is not None:
                    self._copy_before(task, refused.offset)
                if refused.offset is not None or refused.among <= 1:
                    raise
                self._aside = replace(self._aside, searching=True)
                if self._size.refused(refused.among):
                    self.deadline.moved()
                let_go(refused)
            except TooManyFailed as refused:
                self._copy_before(task, refused.offset)
                raise
            except Unreachable as e:
                failures = 1 if self._result.chunks > chunks else failures + 1
                chunks = self._result.chunks
                self._wait(task, failures, e)
                before = self._turns.now
                if failures >= PATIENCE and self._turns.give_up(task.range.until):
                    # Another engine has other connections, and may be able to copy the rest.
                    log.info("%s %s: engine %s got no further", task.key.source, task.range, before.name)
                    self._note_turn(task, before, f"engine {before.name} got no further in {PATIENCE} sessions")
                let_go(e)

    def _learned(self, refused: RefusedAt) -> bool:
        """True if the refusal names records to set aside, or a size of the client's queue, that were not known before.
        Then a new session goes on.
        """
        before, self._aside = self._aside, self._aside.learning(refused.failures, refused.queue)
        if self._aside is before:
            return False
        self._size.stop_searching()
        self.deadline.moved()
        return True

    def _wait(self, task: CopyTask, failures: int, error: Unreachable) -> None:
        """Pause after so many failures in a row. Raises AttemptsExhausted after the last attempt, OutOfTime or
        NoProgress at the end.
        """
        doing, most = f"copying {task.key.source} {task.range}", self.attempts
        if failures >= most:
            raise AttemptsExhausted.of(doing, failures, error) from error
        if self.deadline.left <= backoff(failures):
            raise self.deadline.over(doing, error) from error
        message = "%s %s: attempt %d of %d ended (%s); a new session goes on"
        values = task.key.source, task.range, failures, most, error
        log_event(log, logging.WARNING, Event.COPY_SESSION_ENDED, message, *values)
        self.pause(backoff(failures))

    def _copy_before(self, task: CopyTask, refused: int) -> None:
        """Copy all records before the refused one, so that none of them is missing."""
        if refused > task.range.from_:
            # In new sessions, because an earlier record may have been refused too, before the sink reported it.
            self._size.stop_searching()
            self._aside = replace(self._aside, searching=False)
            self._sessions(replace(task, range=OffsetRange(task.range.from_, refused)))

    def _by_turns(self, task: CopyTask) -> None:
        """Copy the range in sessions of one engine after the other, as they hand over to each other."""
        copied = False
        while not copied:
            before = self._turns.now
            try:
                copied = self._session(replace(task, hands_over=self._turns.hands_over), before)
            except HandOver as e:
                log.info("%s: offsets before %d are for another engine: %s", task.key.source, e.until, e)
                self._turns.hand_over(e)
                self._note_turn(task, before, str(e))
                let_go(e)

    def _note_turn(self, task: CopyTask, before: CopyEngine, why: str) -> None:
        """Note the engine that is at work now, unless it is the one before."""
        if (now := self._turns.now) is before:
            return
        until = task.range.until if self._turns.until is None else min(self._turns.until, task.range.until)
        turn = Turn(engine=now.name, range=OffsetRange(min(self._at[0], until), until), why=why)
        self._result = self._result.with_turn(turn)

    def _session(self, task: CopyTask, engine: CopyEngine) -> bool:
        """Copy until the range or the work of the engine ends. Returns whether the range is copied."""
        self._result = replace(self._result, sessions=self._result.sessions + 1)
        self._attempts += 1
        failpoints.reached("P0")
        with (
            self.sink.session(task.key, task.ids, self._aside) as target,
            engine.reader(task) as source,
        ):
            try:
                target.fence()
                position = target.position()
                _check_position(task, position)
                assert position is not None
                source.check_ids(task.ids)  # otherwise a deleted topic would look like an unreachable one
                _check_target(task, target, position)
                failpoints.reached("T1", str(task.key.source))
                while left := position.left_of(task.range):
                    from_, until = left[0].from_, left[0].until
                    until = until if self._turns.until is None else min(until, self._turns.until)
                    if from_ >= until:  # the next part is for another engine
                        self._turns.ended(from_)
                        return False
                    part = OffsetRange(from_, until)
                    self.deadline.check(f"copying {task.key.source} {part}")
                    self._at = from_, ""
                    try:
                        position = self._chunk(task, source, target, part, position)
                    except ReplicationError:
                        if (first := target.first) is not None:  # of the chunk that failed
                            self._at = first[0], key_digest(first[2])
                        raise
            finally:
                throttled = self._result.throttled + _throttled(source, target)
                self._result = replace(self._result, throttled=round(throttled, 3))
        return True

    def _chunk(
        self, task: CopyTask, source: SourceReader, target: SinkSession, left: OffsetRange, position: Position
    ) -> Position:
        throttled = -_throttled(source, target)
        try:
            chunk = source.copy_chunk(left, position, target, self._size.records)
        except Unreachable:
            self._size.failed(target.written)
            raise
        moved = chunk.moved(position)
        failpoints.reached("P1", str(task.key.source))
        source.check_ids(task.ids)
        target.check_ids(task.ids)
        throttled += _throttled(source, target)
        receipt = Receipt(
            generation=task.generation,
            range=chunk.range,
            count=chunk.count,
            bytes=chunk.bytes,
            digest=chunk.digest,
            digest_kind=self._turns.now.digest_kind,
            engine=self._turns.now.name,
            placement=chunk.placement,
            ids=task.ids,
            run_id=task.run_id,
            time=now(),
            throttled=round(throttled, 3),
            quarantined=sum(failed.place is not None for failed in chunk.failures),
            skipped=sum(failed.place is None for failed in chunk.failures),
            failures=chunk.failures,
            sources=chunk.sources,
            filtered=chunk.filtered,
            transform=chunk.transform,
            offset_map=chunk.offset_map,
        )
        moved = moved.counting(receipt)
        stored = target.commit(moved, receipt)
        failpoints.reached("P3", str(task.key.source))
        self._at, self._attempts, self._moved = (chunk.range.until, ""), 1, time.monotonic()
        self._size.committed(chunk.read)
        self._aside = self._aside.from_(chunk.range.until)
        self.deadline.moved()
        done = self._result
        self._result = replace(
            done,
            copied=done.copied + chunk.copied,
            bytes=done.bytes + chunk.bytes,
            chunks=done.chunks + 1,
            failed=done.failed + len(chunk.failures),
            receipts_from=done.receipts_from if done.chunks else stored,
        )
        self.progress(task, self._result)
        return moved


def _throttled(source: SourceReader, target: SinkSession) -> float:
    """The seconds for which both sides have made this session wait."""
    return source.throttled + target.throttled


def _check_target(task: CopyTask, target: SinkSession, position: Position) -> None:
    """Raise ForeignWriter for records that are not ours. Raise Fenced if a newer copier of ours wrote them."""
    try:
        target.check_target(position)
    except ForeignWriter as e:
        if target.position() != position:
            raise Fenced(
                f"{task.key.source}: a newer copier took over", "run again when the other run has ended"
            ) from e
        raise


def _check_position(task: CopyTask, position: Position | None) -> None:
    """Raise Refused or TargetLost if the ledger's position does not fit the plan."""
    at = task.key.source
    if position is None:
        raise Refused(
            f"{at}: the ledger has no position for {task.key}, yet it was opened",
            "restore the ledger topics of the target",
        )
    if position.sealed:
        raise Refused(f"{at}: this direction was sealed {position.sealed}", "end this run; a new one says what to do")
    if position.generation != task.generation:
        raise Refused(
            f"{at}: the plan is for generation {task.generation}, the ledger is at {position.generation}", "plan again"
        )
    if position.ids != task.ids:
        raise Refused(
            f"{at}: the ledger has the ids {position.ids}, the plan {task.ids}: a topic was re-created", "plan again"
        )
    planned = task.range.from_ if task.position is None else task.position
    if position.next_offset < planned and position.left_of(OffsetRange(position.next_offset, planned)):
        raise Refused(
            f"{at}: the ledger's position is {position.next_offset}, but it was {planned} when {task.range} was"
            " planned: the ledger went back to an older state",
            "find out why the ledger topics are in an older state, then plan again",
        )
    if lost := lost_before(position, task.range, task.missing):
        raise TargetLost(
            f"{at}: the target has lost {lost} since {task.range} was planned; that has to be copied first",
            "start the run again; if this is a backfill, let one live run finish first; in Airflow, clear the task plan"
            " of this run",
        )
