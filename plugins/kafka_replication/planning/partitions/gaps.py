"""Gaps: source offsets that can no longer be read, and their approval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_replication.ledger.entries import Position, Receipt
from kafka_replication.model.offsets import Coverage, OffsetRange


def first_gap(position: Position, log_start: int) -> OffsetRange | None:
    """The first range after the position that is neither on the target nor readable; None if there is none.

    If a backfill copied offsets in between, there can be further ranges. Each range is approved separately.
    """
    if log_start <= position.next_offset:
        return None
    return next(iter(position.left_of(OffsetRange(position.next_offset, log_start))), None)


def unverifiable(
    pending: Coverage, receipts: Iterable[Receipt], starts: Mapping[int, int], expired: Coverage
) -> OffsetRange | None:
    """The first range of pending source offsets that can no longer be verified; None if there is none.

    The target deleted their records, or their receipts have ``expired``. ``starts`` has its log start by partition.
    """
    gone = [
        receipt.range
        for receipt in receipts
        if pending.contains(receipt.range) and any(part.first < starts.get(part.partition, 0) for part in receipt.parts)
    ]
    return next(iter(Coverage.of(gone).union(expired)), None)


def crossing(position: Position, gap: OffsetRange) -> Position:
    """The position after the gap is added to its coverage."""
    return position.adding(gap, None, 0)
