"""From where a run needs receipts: what is verified already needs none, so that reading does not grow with history."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.planning.plan import PartitionPlan, Plan


def receipts_from(plan: Plan, view: LedgerView, ends: Mapping[int, int]) -> dict[int, int]:
    """For each ledger partition the offset from which verifying and reporting this plan needs receipts.

    ``ends`` were asked for before ``view`` was read: a receipt that the view does not know lies above them.
    """
    offsets: dict[int, int] = {}
    for planned in plan.to_account_for:
        partition = planned.key.ledger_partition
        offsets[partition] = min(offsets.get(partition, ends[partition]), _needed(planned, view, ends[partition]))
    return offsets


def _needed(planned: PartitionPlan, view: LedgerView, end: int) -> int:
    position = view.position(planned.key, planned.generation)
    if position is None:  # opened after the view was read, or refused: it has no receipts yet
        return end
    verified = view.verified_or_waived(planned.key, planned.generation)
    if any(
        verified.within(range_) for range_ in planned.ranges
    ):  # a backfill over copied offsets reports their receipts
        return 0
    return (view.receipts_from(planned.key) or 0) if position.coverage.subtract(verified) else end


def first_needed(key: PartitionKey, view: LedgerView, planned: Mapping[int, int]) -> int | None:
    """The better of two bounds, the ledger's and the plan's, below which no receipt of ``key`` is unverified."""
    known = (view.receipts_from(key), planned.get(key.ledger_partition))
    return max((offset for offset in known if offset is not None), default=None)
