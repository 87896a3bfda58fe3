"""The interface of a sink, to which records arrive exactly once. The copier and the engines use a target only through
this.

Kafka implements it with transactions. A store that can set a position only if it is still the expected one (OpenSearch
with ``if_seq_no``, HBase with ``checkAndPut``) implements it so: its `fence` takes a new number for the key, its
writes are idempotent (the id is made of topic, partition and source offset), and its `commit` sets position and receipt
in one conditional write.

The records of one range that are set aside instead of copied: quarantined or skipped, as the policy says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kafka_replication.config.sections import Failures, Policy
from kafka_replication.ledger.entries import FailedRecord, Ids, Position, Receipt
from kafka_replication.ledger.placement import Placement
from kafka_replication.ledger.port import Ledger, TransactionPort
from kafka_replication.model.choices import Failure, FailureKind
from kafka_replication.model.errors import RecordRefused, TooManyFailed
from kafka_replication.model.offsets import Coverage, PartitionKey, TopicPartition
from kafka_replication.verification.digests import key_digest, record_digest
from kafka_replication.verification.verify import TargetReader

MOST_IN_CHUNK = 500  # so that a receipt, which names each of them, stays far below a megabyte


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """The records of a range that one session may set aside, and those that the sessions before it have learned of.

    ``known`` has what a refusal taught: these records are set aside when they are read again. While ``searching``, a
    record was refused that is not known yet. ``queue`` is the size in bytes of the largest record that was too large
    for the queue of a client.
    """

    policy: Failures = field(default_factory=Failures)
    topic: str = ""  # the quarantine topic
    generation: int = 1
    most: int = 0  # records of this generation that may be set aside in all
    known: Mapping[int, Failure] = field(default_factory=dict)  # by source offset
    searching: bool = False
    queue: int = 0

    @property
    def anything(self) -> bool:
        """True if there is a policy by which a record can be set aside."""
        return self.policy.policies != {"fail"}

    def action(self, failure: Failure) -> Policy:
        """The policy for the record."""
        return self.policy.of(failure.kind)

    def learning(self, failures: Iterable[Failure], queue: int = 0) -> SetAside:
        """With what a refusal taught. Equal to this if the policy is to fail, or if that was known: then it does not
        help.
        """
        if queue > self.queue:
            return replace(self, queue=queue)
        new = {one.offset: one for one in failures if self.action(one) != "fail" and one.offset not in self.known}
        return replace(self, known={**self.known, **new}, searching=False) if new else self

    def from_(self, offset: int) -> SetAside:
        """Without what is known below this offset, which is not read again."""
        if not self.known:
            return self
        return replace(self, known={number: failure for number, failure in self.known.items() if number >= offset})

    def check(self, so_far: int, offset: int, what: str) -> None:
        """Raise TooManyFailed if this record may not be set aside, after so many of this generation."""
        if so_far >= self.most:
            raise TooManyFailed(
                f"{what}; it is one more than a run may set aside of each source partition (failures.limit)",
                "find out why so many records cannot be copied, and remove the cause; or raise failures.limit. Records"
                " that were set aside stay so: kafka-replication failed list",
                offset,
            )


# One decoded source record: offset, timestamp (ms since the epoch), key, value, headers (as the client gives them).
# A plain tuple, because making a named one for every record costs 4 % of a copy.
Record = tuple[int, int, bytes | None, bytes | None, Any]

REASON = 300  # characters of a reason that receipts keep


def size_of(record: Record) -> int:
    """The bytes of key, value and headers."""
    _, _, key, value, headers = record
    size = len(key or b"") + len(value or b"")
    if headers:
        size += sum(len(name.encode()) + len(content or b"") for name, content in headers)
    return size


def digest_of(record: Record) -> str:
    """The digest of one record, as in `FailedRecord.digest`."""
    return record_digest(*record[1:]).hex()


def failed_record(record: Record, failure: Failure) -> FailedRecord:
    """The record as a receipt names it, without its place."""
    return FailedRecord(
        offset=failure.offset,
        kind=failure.kind.value,
        reason=shortened(failure.reason),
        error=failure.error,
        size=size_of(record),
        key_digest=key_digest(record[2]),
        digest=digest_of(record),
    )


def shortened(reason: str) -> str:
    """The first characters of a reason, as many as a receipt keeps."""
    return reason if len(reason) <= REASON else f"{reason[: REASON - 3]}..."


@dataclass(frozen=True, slots=True)
class TargetState:
    """The current state of a target topic (index, table). A target that was re-created has another ``id``."""

    id: str
    partitions: frozenset[int]


class RefusedAt(RecordRefused):
    """A record cannot be copied: the one at source offset ``offset``. None: one of the last ``among`` written records.

    ``error`` is the class of the error, as in `Failure`, ``key`` that of the record. ``more`` are further records that
    are refused. ``queue`` is the size in bytes of a record that the client's own queue does not take, which is no
    failure of the record: a session with a larger queue takes it.
    """

    def __init__(
        self,
        what: str,
        remedy: str,
        offset: int | None,
        among: int = 1,
        *,
        kind: FailureKind = FailureKind.REFUSED,
        error: str = "",
        key: bytes | None = None,
        more: Sequence[Failure] = (),
        queue: int = 0,
    ) -> None:
        super().__init__(what, remedy)
        self.offset, self.among, self.kind, self.error, self.more = offset, among, kind, error, tuple(more)
        self.queue, self.key_digest = queue, key_digest(key)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The records that it names, and that may be set aside."""
        if self.offset is None or self.queue:
            return ()
        return (Failure(self.offset, self.kind, self.what, self.error), *self.more)


Screen = Callable[[Record], Failure | None]


class RecordWriter(Protocol):
    """Writes the records of one chunk, in the order of the calls."""

    @property
    def screen(self) -> Screen | None:
        """The function that names a record which the target is certain to refuse; call it before each record. None:
        nothing is set aside, and no record need be asked about.
        """

    def set_aside(self, record: Record, failure: Failure) -> None:
        """Quarantine or skip a record that is not written, in the same transaction.

        Raises RefusedAt if the policy is to fail, TooManyFailed, and the errors of `write`.
        """

    @property
    def full(self) -> bool:
        """True if so much was set aside that the chunk should end."""

    @property
    def failures(self) -> tuple[FailedRecord, ...]:
        """The records that were set aside, and their places. Complete after `finish`."""

    def write(self, records: Sequence[Record]) -> None:
        """Send these records. Returns before they are acknowledged. Waits while the client's queue is full.

        Call it with no records while the source is idle, so that errors are reported early.

        Raises RefusedAt, Unreachable (Stalled when nothing is acknowledged any more), Fenced.
        """

    def finish(self, digest: str) -> Placement:
        """Wait until every record is acknowledged. Return where they are on the target. ``digest`` covers all of them.

        Raises the errors of `write`, and ForeignWriter if records of another writer are between ours.
        """


@dataclass(frozen=True, slots=True)
class Batches:
    """The part of a session whose target stores record batches as the source has them. Their writer, a `BatchProducer`,
    is the matter of Kafka's session and of the engine that copies whole batches.
    """

    largest: int  # in bytes
    begin: Callable[[], Any]  # begins the next chunk, and returns its writer; a session writes batches or records


class SinkSession(Protocol):
    """The one writer of one key. Any error ends the session; uncommitted records must then never count as copied.

    The copier calls the methods in this order: `fence`, `position`, `check_target`, then for each chunk `begin`, the
    writer's `write` and `finish`, `check_ids`, `commit`. Who only writes entries of the ledger calls `fence`, and then
    `ledger.writing.apply`; who decides about records that were set aside commits a chunk and the decision with it.
    """

    @property
    def key(self) -> PartitionKey: ...

    @property
    def ledger(self) -> Ledger:
        """Reads on after `fence`."""

    @property
    def transaction(self) -> TransactionPort:
        """For entries of the ledger. `begin` begins it, too."""

    def fence(self) -> None:
        """Make every earlier session of this key unable to commit, and commit or abort what such a session left open.

        Must raise Refused for a target that is gone or was re-created, before it waits for that target.
        """

    def position(self) -> Position | None:
        """The newest committed position, never an older one; None if the partition was never opened. Call after
        `fence`.

        Must include every commit of an earlier session that took effect before `fence` returned, whether or not that
        session was told so.
        """

    def check_target(self, position: Position) -> None:
        """Raise ForeignWriter if the target has records that are not in the ledger, or lacks records that are."""

    def check_ids(self, ids: Ids) -> None:
        """Raise Refused unless the target still is the one with this id."""

    def begin(self) -> RecordWriter:
        """Begin the next chunk. Records written before do not belong to it."""

    @property
    def batches(self) -> Batches | None:
        """To write whole batches instead of records; None if the target takes none."""

    @property
    def written(self) -> int:
        """The number of records that were written to the chunk that was begun last; 0 once it is committed."""

    @property
    def first(self) -> Record | None:
        """The first of them; None if there is none."""

    @property
    def throttled(self) -> float:
        """The seconds for which the target has made this session wait: a quota, or it was not ready."""

    def commit(self, position: Position, receipt: Receipt) -> int | None:
        """Commit the chunk, its receipt and the new position: all of them or none. If it returns, they are committed.

        Returns the offset of the receipt in its topic, if that is known and nothing before it is needed to verify the
        chunk.

        Raises Fenced if a newer session exists, even if that one started after `finish`. After any other error the
        outcome is unknown: open a new session, call `fence`, and read `position` to learn it.
        """

    def refusal(self, record: Record) -> Failure | None:
        """The failure of a record that the target is certain to refuse."""

    def drop_uncommitted(self, offsets: Coverage) -> None:
        """Drop the records of these source offsets, before they are discarded, if the target places records by offset:
        a session that died may have written them, and did not commit.
        """

    def end_left_open(self, left_open: Iterable[TopicPartition], write: Callable[[], None] | None) -> None:
        """End what an earlier session of this key left open in these partitions of the target: shown to readers
        together with the entries that ``write`` adds to the transaction, or dropped if it is None. Call it after this
        session has committed something. Raises what `TransactionPort` does.
        """

    def close(self) -> None:
        """Give up what is not committed. Never raises."""


class Sink(Protocol):
    """One target cluster (or store). Sessions of different keys are independent of each other."""

    def session(
        self, key: PartitionKey, ids: Ids, aside: SetAside | None = None
    ) -> AbstractContextManager[SinkSession]:
        """A new session; leaving the context aborts what is not committed. ``ids`` are those of the plan. ``aside``
        says what happens to records that cannot be written; None: they are refused.
        """

    def why_not_batches(self, topic: str, settings: Mapping[str, str] | None = None) -> str | None:
        """The reason why sessions of this target topic have no `Batches`; None if they do. ``settings`` are those
        of the topic, if they are known; otherwise the target is asked. Raises Unreachable.
        """

    def verifier(self, key: PartitionKey) -> AbstractContextManager[TargetReader]:
        """Reads copied records back as the target's readers see them, with connections of its own."""
