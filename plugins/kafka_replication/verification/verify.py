"""What counts as verified: receipts cover the range exactly, and what is on the target equals what they say.

The digest that is compared is of the kind that the receipt names.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafka_replication.ledger.entries import Receipt, Segment
from kafka_replication.model.errors import ReplicationError, VerificationFailed
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.verification.digests import Digest, digest_for


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """The receipts of one partition that are still to be verified, in source order."""

    key: PartitionKey
    receipts: tuple[Receipt, ...]
    level: str


@dataclass(frozen=True, slots=True)
class SegmentDigest:
    """What was read back for one segment. ``digest`` is empty where none was asked for."""

    count: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """What of one partition was read back and found equal; ``error`` names the first chunk that was not."""

    key: PartitionKey
    verified: Coverage
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    error: str | None = None
    remedy: str = ""
    retriable: bool = False


class TargetReader(Protocol):
    """Reads segments of one target partition afresh, as a ``read_committed`` consumer sees them."""

    def read(self, segment: Segment, digest: Digest | None) -> SegmentDigest:
        """Feed the segment's records to ``digest``, a new one; None: count them only.

        Raises Stalled (naming the last stable offset) or VerificationFailed where the log starts above the segment.
        """


def select_receipts(wanted: Coverage, receipts: Iterable[Receipt]) -> tuple[Receipt, ...]:
    """The receipts that cover ``wanted`` exactly, in order. Raises VerificationFailed for a hole or an overlap."""
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


_AUDIT = "somebody changed the receipts topic: compare source and target before going on"


def verify(task: VerifyTask, reader: TargetReader) -> VerifyResult:
    """Compare chunk by chunk, stop at the first difference; everything before it counts as verified. Never raises."""
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
        found = reader.read(segment, make_digest() if make_digest else None)
        differences = list(_differences(task, segment, found))
        if differences:
            raise VerificationFailed(
                f"{task.key.source} {receipt.range}: the copy at {task.key.target_topic}-{segment.partition} offsets "
                f"[{segment.first}, {segment.last + 1}) differs from its receipt: {', '.join(differences)}",
                "the target was changed or compacted after the copy: stop other writers, compare both sides, copy again"
                " under another name",
            )


def _differences(task: VerifyTask, segment: Segment, found: SegmentDigest) -> Iterator[str]:
    if found.count != segment.count:
        yield f"{found.count} records, not {segment.count}"
    if task.level == "digest" and found.digest != segment.digest:
        yield f"digest {found.digest}, not {segment.digest}"


def longest_first(tasks: Sequence[VerifyTask]) -> list[VerifyTask]:
    return sorted(tasks, key=lambda task: -sum(receipt.count for receipt in task.receipts))
