"""Finds the offset from which a run needs receipts. Verified ranges need none: reading does not grow with history."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.planning.plan import PartitionPlan, Plan


def receipts_from(plan: Plan, view: LedgerView, ends: Mapping[int, int]) -> dict[int, int]:
    """For each ledger partition the offset from which this plan needs receipts to verify and to report.

    ``ends`` must be taken before ``view`` is read: receipts that the view does not cover are then at or above them.
    """
    offsets: dict[int, int] = {}
    for planned in plan.to_account_for:
        partition = planned.key.ledger_partition
        offsets[partition] = min(offsets.get(partition, ends[partition]), _needed(planned, view, ends[partition]))
    return offsets


def _needed(planned: PartitionPlan, view: LedgerView, end: int) -> int:
    position = view.position(planned.key, planned.generation)
    if position is None:  # opened after the view was read, or refused: there are no receipts
        return end
    verified = view[planned.key].verified_or_waived()
    if any(
        verified.within(range_) for range_ in planned.ranges
    ):  # a backfill over copied offsets reports their receipts
        return 0
    return (view[planned.key].receipts_from() or 0) if position.coverage.subtract(verified) else end


def first_needed(key: PartitionKey, view: LedgerView, planned: Mapping[int, int]) -> int | None:
    """The higher of two offsets, the ledger's and the plan's: all receipts of ``key`` below it are verified."""
    offsets = (view[key].receipts_from(), planned.get(key.ledger_partition))
    return max((offset for offset in offsets if offset is not None), default=None)
