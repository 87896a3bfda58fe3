"""What counts as verified: receipts tile the range, and what is on the target equals what they say."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafka_replication.ledger.entries import Receipt, Segment
from kafka_replication.model.errors import ReplicationError, VerificationFailed
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """The receipts of one partition that are still to be verified, in source order."""

    key: PartitionKey
    receipts: tuple[Receipt, ...]
    level: str


@dataclass(frozen=True, slots=True)
class Found:
    """What was read back for one segment. ``digest`` is empty at level ``count``."""

    count: int
    digest: str


@dataclass(frozen=True, slots=True)
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

    def read(self, segment: Segment, *, digest: bool) -> Found:
        """Raises Stalled (naming the last stable offset) or VerificationFailed where the log starts above the
        segment.
        """


def tile(wanted: Coverage, receipts: Iterable[Receipt]) -> tuple[Receipt, ...]:
    """The receipts that make up ``wanted``, in order. Raises VerificationFailed for a hole or an overlap."""
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
            task.key, Coverage.of(done), records, size, error=e.what, remedy=e.remedy, retriable=e.retriable
        )
    return VerifyResult(task.key, Coverage.of(done), records, size)


def _compare(task: VerifyTask, receipt: Receipt, reader: TargetReader) -> None:
    if sum(segment.count for segment in receipt.segments) != receipt.count:
        raise VerificationFailed(
            f"{task.key.source} {receipt.range}: the receipt's segments do not add up to its {receipt.count} records",
            _AUDIT,
        )
    for segment in receipt.segments:
        found = reader.read(segment, digest=task.level == "digest")
        differences = list(_differences(task, segment, found))
        if differences:
            raise VerificationFailed(
                f"{task.key.source} {receipt.range}: the copy at {task.key.target_topic}-{segment.partition} offsets "
                f"[{segment.first}, {segment.last + 1}) differs from its receipt: {', '.join(differences)}",
                "the target was changed or compacted after the copy: stop other writers, compare both sides, copy again"
                " under another name",
            )


def _differences(task: VerifyTask, segment: Segment, found: Found) -> Iterator[str]:
    if found.count != segment.count:
        yield f"{found.count} records, not {segment.count}"
    if task.level == "digest" and found.digest != segment.digest:
        yield f"digest {found.digest}, not {segment.digest}"


def longest_first(tasks: Sequence[VerifyTask]) -> list[VerifyTask]:
    return sorted(tasks, key=lambda task: -sum(receipt.count for receipt in task.receipts))
