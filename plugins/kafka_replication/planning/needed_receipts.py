"""Finds the offset from which a run needs receipts. Verified ranges need none: reading does not grow with history."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_replication.ledger.view import LedgerView
from kafka_replication.planning.plan import Plan


def receipts_from(plan: Plan, view: LedgerView, ends: Mapping[int, int]) -> dict[int, int]:
    """For each ledger partition the offset from which this plan needs receipts to verify and to report.

    ``ends`` must be taken before ``view`` is read: receipts that the view does not cover are then at or above them.
    """
    offsets: dict[int, int] = {}
    for planned in plan.to_account_for:
        partition = planned.key.ledger_partition
        needed, account = ends[partition], view.of(planned.key, planned.generation)
        verified = account.verified_or_waived()
        if view.position(planned.key, planned.generation) is None:
            pass  # opened after the view was read, or refused: there are no receipts
        elif any(verified.within(range_) for range_ in planned.ranges):
            needed = 0  # a backfill over copied offsets reports their receipts
        elif account.pending():
            needed = account.receipts_from() or 0
        offsets[partition] = min(offsets.get(partition, ends[partition]), needed)
    return offsets
