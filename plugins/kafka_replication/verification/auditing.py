"""The tasks of an audit and their results, as values. The side that decides makes them, a worker works on them."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_replication.ledger.entries import FailedRecord, Receipt
from kafka_replication.ledger.placement import Part
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.verification.chunks import Unit
from kafka_replication.verification.findings import Findings, JsonDifference
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RetriedPart:
    """Records that were set aside, of which ``source`` is the first offset, and their place since they were retried."""

    source: int
    part: Part


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTask:
    """A part of the audit of one partition. ``target_logs`` has what can be read of the target partitions."""

    id: int  # in its job; its result has the same
    key: PartitionKey
    size: Size
    target_logs: dict[int, OffsetRange]
    units: tuple[Unit, ...] = ()
    spread: tuple[SpreadChunk, ...] = ()
    deliveries: Deliveries | None = None
    quarantined: tuple[FailedRecord, ...] = ()
    retried: tuple[RetriedPart, ...] = ()

    @property
    def partition(self) -> PartitionKey:
        """The partition of which it is a part."""
        return self.key

    @property
    def where(self) -> str:
        return str(self.key.source)

    @property
    def reads_source(self) -> bool:
        """True if it compares records with those of the source."""
        there = any(unit.by_content for unit in self.units) or any(chunk.by_content for chunk in self.spread)
        return there or bool(self.deliveries and self.deliveries.by_content)

    def died(self, cause: str, remedy: str) -> AuditResult:
        """The result if no worker brought one back."""
        return AuditResult(id=self.id, findings=Findings(errors=[not_audited(self.where, cause, remedy)]))


@dataclass(frozen=True, slots=True)
class Claim:
    """The places of a part of a chunk in a target partition; with the kind of its digest, if that is wanted."""

    offsets: Coverage
    digest_kind: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTask:
    """Read what chunks of many source partitions have in a part of one target partition. What lies between the claims
    in what is ``searched`` is extra.
    """

    id: int
    at: TopicPartition
    log: OffsetRange
    claims: tuple[Claim, ...]  # all that reach into what is searched, and perhaps further ones
    searched: OffsetRange | None = None
    size: Size = field(default_factory=Size)

    @property
    def partition(self) -> TopicPartition:
        """The partition that it is about."""
        return self.at

    @property
    def where(self) -> str:
        return f"{self.at} on the target"

    def died(self, cause: str, remedy: str) -> TargetResult:
        """The result if no worker brought one back."""
        return TargetResult(id=self.id, error=not_audited(self.where, cause, remedy))


@dataclass(slots=True, kw_only=True)
class AuditResult:
    """The findings about one part of a partition. ``errors`` in them say that it could not be read to its end."""

    id: int
    findings: Findings


@dataclass(slots=True, kw_only=True)
class TargetResult:
    """The digest of each claim that is wanted, by its index, and the extra records. With an error, it was not read."""

    id: int
    parts: dict[int, PartDigest] = field(default_factory=dict)
    extra: list[JsonDifference] = field(default_factory=list)
    further: int = 0  # extra records that are only counted
    error: str | None = None


Audit = AuditTask | TargetTask
Audited = AuditResult | TargetResult


def not_audited(where: str, cause: str, remedy: str) -> str:
    """The error of a part that nobody has read."""
    return f"{where}: a part was not audited: {cause}. Remedy: {remedy}"
