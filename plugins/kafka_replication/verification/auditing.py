"""The tasks of an audit and their results, as values. The side that decides makes them, a worker works on them."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_replication.ledger.entries import FailedRecord, Receipt
from kafka_replication.ledger.placement import Part
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.verification.chunks import Unit
from kafka_replication.verification.findings import Findings
from kafka_replication.verification.verify import PartDigest


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a task, as its receipts say: offsets that are read, records and bytes that were copied of them."""

    offsets: int = 0
    records: int = 0
    bytes: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.offsets + other.offsets, self.records + other.records, self.bytes + other.bytes)

    @classmethod
    def of(cls, receipt: Receipt) -> Size:
        return cls(receipt.range.span, receipt.count, receipt.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadChunk:
    """A chunk whose records lie between those of others. ``found`` is what its target partitions have at its places."""

    receipt: Receipt
    by_content: bool
    found: dict[int, PartDigest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """Chunks that were written without transactions: they and their left-overs lie in ``stretches`` of the target.

    Those of ``by_receipt`` can no longer be made from the source, which still has ``readable``. The source offsets
    ``given_up`` were never copied.
    """

    by_content: tuple[Receipt, ...]
    by_receipt: tuple[Receipt, ...]
    stretches: Coverage
    readable: OffsetRange
    given_up: Coverage


@dataclass(frozen=True, slots=True)
class Claim:
    """The places of a part of a chunk in a target partition; with the kind of its digest, if that is wanted."""

    offsets: Coverage
    digest_kind: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A part of the audit of one source partition; or of one target partition, of which is read what chunks of many
    source partitions have there: the ``claims``. What lies between these in what is ``searched`` is extra.

    ``target_logs`` has what can be read of the target partitions.
    """

    id: int  # in its job; its result has the same
    partition: PartitionKey | TopicPartition
    size: Size = field(default_factory=Size)
    target_logs: dict[int, OffsetRange]
    units: tuple[Unit, ...] = ()
    spread: tuple[SpreadChunk, ...] = ()
    deliveries: Deliveries | None = None
    quarantined: tuple[FailedRecord, ...] = ()
    # Of records that were set aside the first source offset, and their place since they were retried.
    retried: tuple[tuple[int, Part], ...] = ()
    claims: tuple[Claim, ...] = ()  # all that reach into what is searched, and perhaps further ones
    searched: OffsetRange | None = None

    @property
    def where(self) -> str:
        at = self.partition
        return str(at.source) if isinstance(at, PartitionKey) else f"{at} on the target"

    def failed(self, error: str) -> Audited:
        """The result of a part that was not read to its end."""
        return Audited(id=self.id, findings=Findings(errors=[error]))

    def died(self, cause: str, remedy: str) -> Audited:
        """The result if no worker brought one back."""
        return self.failed(f"{self.where}: a part was not audited: {cause}. Remedy: {remedy}")


@dataclass(slots=True, kw_only=True)
class Audited:
    """The findings about one part. ``errors`` in them say that it could not be read to its end. ``parts`` are the
    digests of the claims that are wanted, by their index.
    """

    id: int
    findings: Findings
    parts: dict[int, PartDigest] = field(default_factory=dict)
