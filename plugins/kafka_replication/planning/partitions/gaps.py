"""Gaps: source offsets that can no longer be read, and their approval."""

from __future__ import annotations

from kafka_replication.ledger.entries import Position
from kafka_replication.model.offsets import OffsetRange


def first_gap(position: Position, log_start: int) -> OffsetRange | None:
    """The first range after the position that is neither on the target nor readable; None if there is none.

    If a backfill copied offsets in between, there can be further ranges. Each range is approved separately.
    """
    if log_start <= position.next_offset:
        return None
    return next(iter(position.left_of(OffsetRange(position.next_offset, log_start))), None)
