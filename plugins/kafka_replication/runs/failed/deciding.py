"""Copy failed records after all, or give them up. Each is one transaction of the partition's own transactional id.

The transaction has the records, the entry that says what was decided, and the position with its new end of the target.
So a copier that is at work is fenced, the next one takes the records for ours, and after a crash the ledger says which
records are left.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kafka_replication.kafka.failed_contents import FailedContents, failed_contents
from kafka_replication.kafka.segment_reader import segment_reader
from kafka_replication.kafka.sink import KafkaSink, KafkaSinkSession
from kafka_replication.ledger.entries import Handled, KafkaSegments, Placement, Position
from kafka_replication.model.errors import Refused, ReplicationError, VerificationFailed
from kafka_replication.model.failures import FailureKind
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.model.times import now
from kafka_replication.runs import steps
from kafka_replication.runs.run import LeasedRun
from kafka_replication.sinks.port import Record, RefusedAt
from kafka_replication.sinks.set_aside import SetAside
from kafka_replication.verification.digest import DIGEST_KIND, Fingerprint
from kafka_replication.watermarks.failed import DISCARDED, RETRIED, SKIPPED, FailedRow, with_decisions

log = logging.getLogger(__name__)
MOST_RECORDS, MOST_BYTES = 500, 32 << 20  # of one transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person wants. Raises Refused for a name or a reason that is no line of text."""

    by: str
    reason: str = ""

    def __post_init__(self) -> None:
        for text in (self.by, self.reason):
            if len(text) > 1000 or not (text.isprintable() or not text):
                raise Refused(
                    "name and reason must each be one line of at most 1000 printable characters", "shorten it"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one failed record. ``why`` says why it stays as it was; ``target`` is its new target offset."""

    row: FailedRow
    why: str = ""
    target: int | None = None
    behind_newer: bool = False  # records that are newer at the source lie before it on the target

    @property
    def done(self) -> bool:
        return not self.why


def discard(run: LeasedRun, rows: Sequence[FailedRow], decision: Decision) -> list[Outcome]:
    """Give these records up. They stay where they are; nobody is asked about them again."""
    steps.fence_stale_producers(run)
    done = list[Outcome]()
    for key, some in _by_key(rows):
        with _session(run, key) as (session, position):
            left, outcomes = _left(run, key, position, some)
            done += outcomes
            if left:
                session.begin()
                entry = _entry(run, DISCARDED, position, left, decision)
                session.commit(position, entry)
                done += _noted(run, left, entry)
    return done


def retry(run: LeasedRun, rows: Sequence[FailedRow], decision: Decision) -> list[Outcome]:
    """Copy these records to their target, behind everything that is there. A record that is refused again stays."""
    steps.fence_stale_producers(run)
    done = list[Outcome]()
    for key, some in _by_key(rows):
        copying = run.replication.copying
        with failed_contents(key, run.clusters.source, run.clusters.target, copying.stall_timeout) as contents:
            done += _Retry(run, key, contents, decision).all(some)
    return done


@dataclass(slots=True)
class _Retry:
    """The retry of failed records of one partition."""

    run: LeasedRun
    key: PartitionKey
    contents: FailedContents
    decision: Decision

    def all(self, rows: Sequence[FailedRow]) -> list[Outcome]:
        with _session(self.run, self.key) as (session, position):
            self.contents.look(self.run.clusters.source_admin, position.ids)
            left, done = _left(self.run, self.key, position, rows)
            limits = session.limits()
        chunk, size = list[tuple[FailedRow, Record]](), 0
        for row in left:
            if row.record.kind == FailureKind.UNFAITHFUL:
                done.append(Outcome(row=row, why=f"it still cannot be copied unchanged: {row.record.reason}"))
            elif (record := self.contents.of(row.record)) is None:
                done.append(Outcome(row=row, why="neither the source nor the quarantine topic has its content"))
            elif failure := limits.refusal(record):
                done.append(Outcome(row=row, why=f"the target still refuses it: {failure.reason}"))
            else:
                chunk.append((row, record))
                size += max(0, row.record.size)
            if len(chunk) >= MOST_RECORDS or size >= MOST_BYTES:
                done += self._some(chunk)
                chunk, size = [], 0
        return done + (self._some(chunk) if chunk else [])

    def _some(self, chunk: Sequence[tuple[FailedRow, Record]]) -> list[Outcome]:
        """Copy them in one transaction; if the target refuses one, in smaller ones."""
        try:
            return self._together(chunk)
        except RefusedAt as refused:
            if len(chunk) == 1:
                return [Outcome(row=chunk[0][0], why=f"the target still refuses it: {refused.what}")]
            named = {failure.offset: failure.reason for failure in refused.failures}
            if named:
                left = [one for one in chunk if one[1][0] not in named]
                again = [Outcome(row=row, why=named[record[0]]) for row, record in chunk if record[0] in named]
                return again + (self._some(left) if left else [])
            half = len(chunk) // 2
            return self._some(chunk[:half]) + self._some(chunk[half:])

    def _together(self, chunk: Sequence[tuple[FailedRow, Record]]) -> list[Outcome]:
        self.run.check()
        digest = Fingerprint()
        for _, record in chunk:
            digest.add(*record[1:])
        rows = [row for row, _ in chunk]
        with _session(self.run, self.key) as (session, position):
            if len(_left(self.run, self.key, position, rows)[0]) < len(rows):
                raise Refused(f"{self.key.source}: somebody else handled these records meanwhile", "list them again")
            session.check_target(position)
            writer = session.begin()
            writer.write([record for _, record in chunk])
            placement = writer.finish(digest.hexdigest())
            session.check_ids(position.ids)
            entry = replace(
                _entry(self.run, RETRIED, position, rows, self.decision, placement),
                count=digest.count,
                digest=digest.hexdigest(),
                digest_kind=DIGEST_KIND,
            )
            moved = replace(position, target_end=max(segment.last + 1 for segment in placement.segments))
            session.commit(moved, entry)
        self._read_back(entry)
        places = [at for segment in placement.segments for at in range(segment.first, segment.last + 1)]
        return [
            replace(outcome, target=at, behind_newer=position.next_offset > outcome.row.record.offset + 1)
            for outcome, at in zip(_noted(self.run, rows, entry), places, strict=True)
        ]

    def _read_back(self, entry: Handled) -> None:
        stall = self.run.replication.copying.stall_timeout
        with segment_reader(self.run.clusters.target, self.key, stall) as reader:
            for segment in entry.segments:
                digest = Fingerprint()
                reader.read(segment, digest)
                if (digest.count, digest.hexdigest()) != (segment.count, segment.digest):
                    raise VerificationFailed(
                        f"{self.key.source}: the records {entry.offsets} that were retried differ at {self.key.target}"
                        f" offsets [{segment.first}, {segment.last + 1})",
                        "find out who changed the target, then audit the topic (kafka-replication audit)",
                    )


def _by_key(rows: Sequence[FailedRow]) -> Iterator[tuple[PartitionKey, list[FailedRow]]]:
    for key in sorted({row.key for row in rows}):
        yield key, sorted((row for row in rows if row.key == key), key=lambda row: row.id)


@contextmanager
def _session(run: LeasedRun, key: PartitionKey) -> Iterator[tuple[KafkaSinkSession, Position]]:
    """A session of the partition's own producer, and the position that it read after fencing."""
    run.check()
    position = run.view().positions.get(key)
    if position is None:
        raise Refused(f"{key.source}: the ledger has no position for {key}", "restore the ledger topics of the target")
    sink = KafkaSink(run.clusters.target, run.replication.copying, run.deadline)
    with sink.session(key, position.ids, SetAside(searching=True)) as session:
        session.fence()
        fenced = session.position()
        if fenced is None or fenced.generation != position.generation:
            raise Refused(f"{key.source}: its position changed meanwhile", "list the failed records again")
        session.check_ids(fenced.ids)
        yield session, fenced


def _left(
    run: LeasedRun, key: PartitionKey, position: Position, rows: Sequence[FailedRow]
) -> tuple[list[FailedRow], list[Outcome]]:
    """What can still be decided, and outcomes for the rest. Call it after fencing, so that no decision is doubled."""
    handled = run.view().handled.get(key, ())
    left, done = list[FailedRow](), list[Outcome]()
    for row in (with_decisions(row, handled) for row in rows):
        if row.generation != position.generation:
            done.append(Outcome(row=row, why="it is of an earlier generation: the topic was reset since then"))
        elif not row.is_open:
            done.append(Outcome(row=row, why=f"it was {row.state} before"))
        else:
            left.append(row)
    return left, done


def _entry(
    run: LeasedRun,
    state: str,
    position: Position,
    rows: Sequence[FailedRow],
    decision: Decision,
    placement: Placement = KafkaSegments(),
) -> Handled:
    skipped = [row.record.offset for row in rows if row.state == SKIPPED]
    quarantined = [row.record.offset for row in rows if row.state != SKIPPED]
    return Handled(
        generation=position.generation,
        state=state,
        quarantined=_offsets(quarantined),
        skipped=_offsets(skipped),
        ids=position.ids,
        by=decision.by,
        reason=decision.reason,
        run_id=run.run_id,
        time=now(),
        placement=placement,
    )


def _offsets(offsets: Sequence[int]) -> Coverage:
    return Coverage.of(OffsetRange(offset, offset + 1) for offset in offsets)


def _noted(run: LeasedRun, rows: Sequence[FailedRow], entry: Handled) -> list[Outcome]:
    """The outcomes, and the store's rows. A store that is away gets them when it is asked next."""
    decided = [with_decisions(row, [entry]) for row in rows]
    try:
        run.store.record_failed(decided)
    except ReplicationError as error:
        log.warning("%s: the store does not know yet of %s: %s", run.replication.name, entry.offsets, error)
    return [Outcome(row=row) for row in decided]
