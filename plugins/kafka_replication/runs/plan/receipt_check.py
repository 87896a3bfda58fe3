"""Compares positions with receipts before anything is copied from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafka_replication.ledger.contradictions import of_receipts
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage
from kafka_replication.planning import refusals
from kafka_replication.planning.live import as_compared
from kafka_replication.planning.plan import PartitionPlan, Plan
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.runs.run import Run


def defended(run: Run, view: LedgerView, snapshot: Snapshot, run_plan: Plan) -> Plan:
    """The plan without partitions whose receipts contradict their position; these are refused.

    Reads receipts only of partitions that are to be copied, from where unverified ones can begin, so that the cost does
    not grow with history. If the store does not know such a partition, it was lost or replaced, and all receipts of the
    partition's generation are read.
    """
    view = as_compared(view, snapshot)
    known = run.watermarks(view)
    wanted = {
        planned.key: view.receipts_from(planned.key) if planned.key in known else position.receipts_from
        for planned in run_plan.to_copy
        if (position := view.position(planned.key, planned.generation)) is not None
    }
    if not wanted:
        return run_plan
    receipts = run.clusters.ledger.receipts(wanted)
    found = {key: texts for key in wanted if (texts := of_receipts(key, view, receipts))}
    if found:  # unless a run is at work, and has committed more since the view was read
        now = run.view().positions
        found = {key: texts for key, texts in found.items() if now.get(key) == view.positions[key]}
    return replace(run_plan, partitions=tuple(_refused(planned, found) for planned in run_plan.partitions))


def _refused(planned: PartitionPlan, found: Mapping[PartitionKey, Sequence[str]]) -> PartitionPlan:
    if planned.key not in found:
        return planned
    refusal = refusals.contradicted(planned.key, found[planned.key])
    return replace(planned, state=refusal.state, copy=None, verify=Coverage(), what=refusal.what, remedy=refusal.remedy)
