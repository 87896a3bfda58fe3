"""Copy failed records again, or give them up. Each is one transaction of the partition's own transactional id.

The transaction has the records, the entry that says what was decided, and the position with its new end of the target.
So a copier that is at work is fenced, the next one takes the records for ours, and after a crash the ledger says which
records are left. That is so in every delivery profile. One session decides about all records of a partition: it fences
once, reads the ledger once after that, and knows by itself what it has committed since.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import groupby

from kafka_replication.copying.pipeline import Pipeline
from kafka_replication.copying.sink import Record, RefusedAt
from kafka_replication.copying.steps import Origin
from kafka_replication.ledger.entries import Handled, Proof
from kafka_replication.ledger.placement import described
from kafka_replication.ledger.view import LedgerView
from kafka_replication.ledger.writing import apply
from kafka_replication.model.choices import Failure, FailureKind
from kafka_replication.model.errors import (
    BadInput,
    NotAdmitted,
    Refused,
    ReplicationError,
    Unreachable,
    VerificationFailed,
)
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey
from kafka_replication.model.times import now
from kafka_replication.runs import steps
from kafka_replication.runs.failed_records import FailedContents, Fenced, Outcome, fenced, left_of
from kafka_replication.runs.run import LeasedRun
from kafka_replication.verification.digests import DIGEST_KIND, Fingerprint
from kafka_replication.verification.newest import NewestRecords, at_keys, key_reader
from kafka_replication.verification.verify import read_again
from kafka_replication.watermarks.failed import (
    DISCARDED,
    RETRIED,
    SKIPPED,
    FailedId,
    FailedRow,
    with_decisions,
)

log = logging.getLogger(__name__)
MOST_RECORDS, MOST_BYTES = 500, 32 << 20  # of one transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A person's decision: who, and why. Raises BadInput for a name or a reason that is no line of text."""

    by: str
    reason: str = ""

    def __post_init__(self) -> None:
        for text in (self.by, self.reason):
            if len(text) > 1000 or not (text.isprintable() or not text):
                raise BadInput(
                    "name and reason must each be one line of at most 1000 printable characters",
                    "shorten it, and leave out line breaks and tabs",
                )


def discard(run: LeasedRun, rows: Sequence[FailedRow], decision: Decision) -> list[Outcome]:
    """Give these records up. They stay where they are; nobody is asked about them again."""

    def one(view: LedgerView, key: PartitionKey, some: Sequence[FailedRow]) -> Iterator[Outcome]:
        with fenced(run, view, key) as held:
            left, outcomes = left_of(held, some, (DISCARDED,))
            yield from outcomes
            if left:
                after, change = held.account.deciding(_entry(held, DISCARDED, left, decision))
                entry = after.handled[-1]
                held.session.drop_uncommitted(entry.offsets)
                apply(held.session.ledger, held.session.transaction, [change])
                yield from _noted(run, left, entry)

    return _for_each(run, rows, one)


def retry(run: LeasedRun, rows: Sequence[FailedRow], decision: Decision) -> list[Outcome]:
    """Copy these records to their target, behind everything that is there. A record that is refused again stays."""

    def one(view: LedgerView, key: PartitionKey, some: Sequence[FailedRow]) -> Iterator[Outcome]:
        clusters, stall = run.clusters, run.replication.copying.stall_timeout
        with (
            clusters.target.quarantine() as quarantine,
            closing(FailedContents(key, clusters.source, quarantine, stall)) as contents,
            ExitStack() as session,
        ):
            yield from _Retry(
                run=run,
                before=view,
                key=key,
                contents=contents,
                decision=decision,
                pipeline=run.pipeline,
                session=session,
            ).all(some)

    return _for_each(run, rows, one)


Handle = Callable[[LedgerView, PartitionKey, Sequence[FailedRow]], Iterable[Outcome]]


def _for_each(run: LeasedRun, rows: Sequence[FailedRow], handle: Handle) -> list[Outcome]:
    """The outcomes of the records, partition by partition. One that is refused or does not answer holds up no other."""
    steps.fence_stale_producers(run)
    view, done = run.view(), dict[FailedId, Outcome]()
    in_order = sorted(rows, key=lambda row: row.id)
    for key, some in ((key, list(of_key)) for key, of_key in groupby(in_order, lambda row: row.key)):
        try:
            for outcome in handle(view, key, some):
                done[outcome.row.id] = outcome
        except NotAdmitted:
            raise
        except (Refused, Unreachable) as error:
            log.warning("%s: %s", key.source, error)
            done |= {row.id: Outcome(row=row, why=str(error)) for row in some if row.id not in done}
    return list(done.values())


@dataclass(frozen=True, slots=True)
class _Content:
    """A failed record, and what is written for it: the record itself, or what the pipeline makes of it."""

    row: FailedRow
    written: Sequence[Record]


@dataclass(slots=True, kw_only=True)
class _Retry:
    """The retry of failed records of one partition."""

    run: LeasedRun
    before: LedgerView  # of before fencing
    key: PartitionKey
    contents: FailedContents
    decision: Decision
    pipeline: Pipeline | None
    session: ExitStack  # closes the one that is open
    held: Fenced | None = None  # None: none is open

    def all(self, rows: Sequence[FailedRow]) -> Iterator[Outcome]:
        held = self._fence()
        self.contents.look(self.run.clusters.source_admin, held.account.position.ids)
        left, done = left_of(held, rows, (RETRIED,))
        refusal, cluster = held.session.refusal, held.account.position.ids.source_cluster
        yield from done
        chunk, size = list[_Content](), 0
        for row in left:
            content = self._content(row, refusal, cluster)
            if isinstance(content, Outcome):
                yield content
                continue
            chunk.append(content)
            size += max(0, row.record.size)
            if len(chunk) >= MOST_RECORDS or size >= MOST_BYTES:
                yield from self._some(chunk)
                chunk, size = [], 0
        if chunk:
            yield from self._some(chunk)

    def _content(self, row: FailedRow, refusal: Callable[[Record], Failure | None], cluster: str) -> _Content | Outcome:
        """The content to write for the record, or the outcome if it cannot be written now."""
        if row.record.kind == FailureKind.UNFAITHFUL:
            return Outcome(row=row, why=f"it still cannot be copied unchanged: {row.record.reason}")
        record = self.contents.of(row.record)
        if record is None:
            return Outcome(row=row, why="neither the source nor the quarantine topic has its content")
        try:
            origin = Origin(cluster, self.key.source.topic, self.key.source.partition)
            written = self.pipeline.outputs(record, origin) if self.pipeline else (record,)
        except RefusedAt as refused:
            return Outcome(row=row, why=refused.what)
        if not written:
            return Outcome(row=row, why="the filter or the transform leaves it out now: discard it")
        if failure := next(filter(None, map(refusal, written)), None):
            return Outcome(row=row, why=f"the target still refuses it: {failure.reason}")
        return _Content(row, written)

    def _some(self, chunk: Sequence[_Content]) -> Iterator[Outcome]:
        """Copy them in one transaction; if the target refuses one, in smaller ones."""
        try:
            yield from self._together(chunk)
        except RefusedAt as refused:
            self.session.close()  # it is over: all it can do is abort its transaction
            self.held = None
            if len(chunk) == 1:
                yield Outcome(row=chunk[0].row, why=f"the target still refuses it: {refused.what}")
            elif named := {failure.offset: failure.reason for failure in refused.failures}:
                left = [one for one in chunk if one.row.record.offset not in named]
                yield from (Outcome(row=one.row, why=named[one.row.offset]) for one in chunk if one not in left)
                yield from self._some(left) if left else ()
            else:
                half = len(chunk) // 2
                yield from self._some(chunk[:half])
                yield from self._some(chunk[half:])

    def _fence(self) -> Fenced:
        self.held = self.session.enter_context(fenced(self.run, self.before, self.key))
        return self.held

    def _together(self, chunk: Sequence[_Content]) -> list[Outcome]:
        self.run.check()
        digest = Fingerprint()
        for content in chunk:
            for record in content.written:
                digest.add(*record[1:])
        rows = [content.row for content in chunk]
        if (held := self.held) is None:  # after a refusal: somebody else may have come between the two sessions
            held = self._fence()
            if len(left_of(held, rows, ())[0]) < len(rows):
                raise Refused(f"{self.key.source}: somebody else handled these records meanwhile", "list them again")
        session, position = held.session, held.account.position
        session.check_target(position)
        writer = session.begin()
        writer.write([record for content in chunk for record in content.written])
        placement = writer.finish(digest.hexdigest())
        session.check_ids(position.ids)
        decided = replace(
            _entry(held, RETRIED, rows, self.decision),
            placement=placement,
            count=digest.count,
            digest=digest.hexdigest(),
            digest_kind=DIGEST_KIND,
        )
        after, change = held.account.deciding(decided)
        apply(session.ledger, session.transaction, [change], begun=True)
        self.held, entry = replace(held, account=after), after.handled[-1]
        noted, why = _noted(self.run, rows, entry), self._not_proven(chunk, entry)
        places = described(placement, self.key.target_topic, [len(content.written) for content in chunk])
        return [
            replace(outcome, why=why, target=where, behind_newer=position.next_offset > outcome.row.offset + 1)
            if where
            else outcome
            for outcome, where in zip(noted, places, strict=True)
        ]

    def _not_proven(self, chunk: Sequence[_Content], entry: Handled) -> str:
        """The reason why it is not certain that what was committed is on the target as it was sent; empty if it is."""
        try:
            self._read_back(chunk, entry)
        except NotAdmitted:
            raise
        except (Refused, Unreachable) as error:
            return f"it was sent, but not read back as it should be: {error}"
        return ""

    def _read_back(self, chunk: Sequence[_Content], entry: Handled) -> None:
        with self.run.clusters.target.sink.verifier(self.key) as reader:
            if entry.proof is Proof.BY_KEY:
                made = NewestRecords.of(record for content in chunk for record in content.written)
                for at in at_keys(self.key.source, made, key_reader(reader, str(self.key.source))):
                    if not at.verdict.is_right:
                        raise VerificationFailed(
                            f"{self.key.source}: {at}", "audit the topic (kafka-replication audit)"
                        )
            for part in entry.parts:
                _, differences = read_again(reader, part, Fingerprint())
                if differences:
                    raise VerificationFailed(
                        f"{self.key.source}: the records {entry.offsets} that were retried differ at"
                        f" {self.key.target_topic}-{part.partition} offsets [{part.first}, {part.until}):"
                        f" {', '.join(differences)}",
                        "find out who changed the target, then audit the topic (kafka-replication audit)",
                    )


def _entry(held: Fenced, state: str, rows: Sequence[FailedRow], decision: Decision) -> Handled:
    return Handled(
        generation=held.account.position.generation,
        state=state,
        quarantined=_offsets([row.record.offset for row in rows if row.state != SKIPPED]),
        skipped=_offsets([row.record.offset for row in rows if row.state == SKIPPED]),
        ids=held.account.position.ids,
        by=decision.by,
        reason=decision.reason,
        run_id=held.run.run_id,
        time=now(),
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
