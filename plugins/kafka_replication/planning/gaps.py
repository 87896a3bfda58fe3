"""Gaps: source offsets that can no longer be read, and giving them up by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_replication.ledger.entries import Gap, Position, Receipt
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange


def lost(position: Position, log_start: int) -> OffsetRange | None:
    """The first offsets after the position that are neither on the target nor readable; None where there are none.

    Where a backfill copied some in between there are further ones behind: each is given up by itself.
    """
    if log_start <= position.next_offset:
        return None
    return next(iter(position.left_of(OffsetRange(position.next_offset, log_start))), None)


def unverifiable(
    pending: Coverage, receipts: Iterable[Receipt], target_start: int, expired: Coverage
) -> OffsetRange | None:
    """The first run of pending chunks that cannot be verified any more, in source offsets; None where there is none.

    The target no longer has their records, or their receipts have ``expired``.
    """
    gone = [
        each.range
        for each in receipts
        if pending.contains(each.range) and any(s.first < target_start for s in each.segments)
    ]
    return next(iter(Coverage.of(gone).union(expired)), None)


def crossing(position: Position, gap: OffsetRange) -> Position:
    """The position behind the gap."""
    return position.after(gap, None, 0)


def command(key: PartitionKey, gap: OffsetRange) -> str:
    """What to type to give exactly these offsets up."""
    at = key.source
    return (
        f"kafka-replication approve-gap {key.replication}.yaml --topic {at.topic} --partition {at.partition} "
        f'--from {gap.from_} --until {gap.until} --target-topic {key.target_topic} --reason "..."'
    )


@dataclass(frozen=True, slots=True)
class ApprovedGap:
    """One gap with whose it is, as status, reports and audits show it ever after."""

    key: PartitionKey
    gap: Gap

    def as_json(self) -> dict[str, Any]:
        gap = self.gap
        return {
            "topic": self.key.source.topic,
            "partition": self.key.source.partition,
            "target_topic": self.key.target_topic,
            "generation": gap.generation,
            "kind": gap.kind,
            "from": gap.range.from_,
            "until": gap.range.until,
            "reason": gap.reason,
            "approved_by": gap.approved_by,
            "time": gap.time,
            "run_id": gap.run_id,
        }

    def __str__(self) -> str:
        gap = self.gap
        return (
            f"{'UNPROVEN' if gap.copied else 'LOST'} {self.key.source} {gap.range}: {gap.range.span} offsets "
            f"({gap.kind}, generation {gap.generation}), "
            f"given up by {gap.approved_by} at {gap.time}: {gap.reason}"
        )


def listed(gaps: Mapping[PartitionKey, Sequence[Gap]]) -> tuple[ApprovedGap, ...]:
    """All of them, in order."""
    return tuple(ApprovedGap(key, each) for key in sorted(gaps) for each in gaps[key])
