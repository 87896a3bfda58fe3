"""A range is verified if receipts cover it exactly, and the records on the target match the receipts.

The receipt names the kind of digest that is compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from kafka_replication.ledger.entries import Receipt, Segment
from kafka_replication.model.delivery import EXACTLY_ONCE, Delivery, weakest_delivery
from kafka_replication.model.errors import ReplicationError, VerificationFailed
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.verification.digests import Digest, digest_for


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """The receipts of one partition that are not verified yet, in source order."""

    key: PartitionKey
    receipts: tuple[Receipt, ...]
    level: str


@dataclass(frozen=True, slots=True)
class SegmentDigest:
    """What was read back for one segment. ``digest`` is empty if only records were counted."""

    count: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What verification found out about the receipt of this range: records that are lost, and further copies."""

    range: OffsetRange
    lost: int
    duplicates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """The offsets of one partition that were read back and are equal; ``error`` names the first chunk that differs.

    ``receipts_from`` is an offset of the receipts topic: all receipts of the partition below it are verified. The
    fields after it are about chunks that were written without transactions: ``judged`` has the receipts that say
    something else than was found, ``judged_until`` is the target offset below which every record is explained.
    """

    key: PartitionKey
    verified: Coverage
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    error: str | None = None
    remedy: str = ""
    retriable: bool = False
    receipts_from: int | None = None
    judged: tuple[Judged, ...] = ()
    lost: int = 0
    duplicates: int = 0
    delivery: Delivery = EXACTLY_ONCE  # the weakest profile of what was verified
    judged_until: int | None = None

    def after(self, before: VerifyResult) -> VerifyResult:
        """Both results of one partition, the later one being this."""
        return replace(
            self,
            verified=before.verified.union(self.verified),
            records=before.records + self.records,
            bytes=before.bytes + self.bytes,
            seconds=before.seconds + self.seconds,
            judged=(*before.judged, *self.judged),
            lost=before.lost + self.lost,
            duplicates=before.duplicates + self.duplicates,
            delivery=weakest_delivery([before.delivery, self.delivery]),
            judged_until=before.judged_until if self.judged_until is None else self.judged_until,
        )


class TargetReader(Protocol):
    """Reads segments of one target partition again, as a ``read_committed`` consumer sees them."""

    def read(self, segment: Segment, digest: Digest | None) -> SegmentDigest:
        """Add the segment's records to ``digest``, which is new and empty. None: only count them.

        Raises Stalled, which names the last stable offset, or VerificationFailed if the log starts after the segment.
        """


def select_receipts(wanted: Coverage, receipts: Iterable[Receipt]) -> tuple[Receipt, ...]:
    """The receipts that cover ``wanted`` exactly, in source order. Raises VerificationFailed for holes or overlaps."""
    chosen = sorted((r for r in receipts if not wanted.missing_from(r.range)), key=lambda r: r.range.from_)
    for before, after in itertools.pairwise(chosen):
        if after.range.from_ < before.range.until:
            raise VerificationFailed(f"the receipts {before.range} and {after.range} overlap", _AUDIT)
    holes = wanted.subtract(Coverage.of(r.range for r in chosen))
    if holes:
        raise VerificationFailed(
            f"no receipt for source offsets {holes}, though the ledger says they are on the target", _AUDIT
        )
    return tuple(chosen)


_AUDIT = "another program changed the receipts topic: compare source and target (kafka-replication audit) first"


def verify(task: VerifyTask, reader: TargetReader) -> VerifyResult:
    """Compare chunk by chunk and stop at the first difference. All chunks before it count as verified. Never raises."""
    done: list[OffsetRange] = []
    records = size = 0
    try:
        for receipt in task.receipts:
            _compare(task, receipt, reader)
            done.append(receipt.range)
            records += receipt.count
            size += receipt.bytes
    except ReplicationError as e:
        return VerifyResult(
            key=task.key,
            verified=Coverage.of(done),
            records=records,
            bytes=size,
            error=e.what,
            remedy=e.remedy,
            retriable=e.retriable,
        )
    return VerifyResult(key=task.key, verified=Coverage.of(done), records=records, bytes=size)


def _compare(task: VerifyTask, receipt: Receipt, reader: TargetReader) -> None:
    segments = receipt.segments
    if sum(segment.count for segment in segments) != receipt.count:
        raise VerificationFailed(
            f"{task.key.source} {receipt.range}: the receipt's segments do not add up to its {receipt.count} records",
            _AUDIT,
        )
    make_digest = digest_for(receipt) if task.level == "digest" else None
    for segment in segments:
        read_back = reader.read(segment, make_digest() if make_digest else None)
        differences = list(_differences(task, segment, read_back))
        if differences:
            raise VerificationFailed(
                f"{task.key.source} {receipt.range}: the copy at {task.key.target_topic}-{segment.partition} offsets "
                f"[{segment.first}, {segment.last + 1}) differs from its receipt: {', '.join(differences)}",
                "the target was changed or compacted after the copy: stop other writers, compare source and target"
                " (kafka-replication audit), then copy again under another replication name",
            )


def _differences(task: VerifyTask, segment: Segment, read_back: SegmentDigest) -> Iterator[str]:
    if read_back.count != segment.count:
        yield f"{read_back.count} records, not {segment.count}"
    if task.level == "digest" and read_back.digest != segment.digest:
        yield f"digest {read_back.digest}, not {segment.digest}"
