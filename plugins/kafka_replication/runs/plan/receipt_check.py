"""Compares positions with receipts before anything is copied from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage
from kafka_replication.planning.live import as_compared
from kafka_replication.planning.partitions import refusals
from kafka_replication.planning.plan import PartitionPlan
from kafka_replication.runs.plan.demand import Planned
from kafka_replication.runs.run import Run

P = TypeVar("P", bound=Planned)


def defended(run: Run, planned: P) -> P:
    """The plan without partitions whose receipts contradict their position; these are refused.

    Reads receipts only of partitions that are to be copied, from where unverified ones can begin, so that the cost does
    not grow with history. If the store does not know such a partition, it was lost or replaced, and all receipts of the
    partition's generation are read.
    """
    run_plan, view = planned.plan, as_compared(planned.world.view, planned.world.snapshot)
    in_store = run.watermarks(view)
    wanted = {
        partition.key: view[partition.key].receipts_from() if partition.key in in_store else position.receipts_from
        for partition in run_plan.to_copy
        if (position := view.position(partition.key, partition.generation)) is not None
    }
    if not wanted:
        return planned
    receipts = run.clusters.ledger.receipts(wanted)
    found = {key: texts for key in wanted if (texts := view[key].contradictions_in(receipts))}
    if found:  # unless a run is at work, and has committed more since the view was read
        now = run.view().positions
        found = {key: texts for key, texts in found.items() if now.get(key) == view.positions[key]}
    partitions = tuple(_refused(partition, found) for partition in run_plan.partitions)
    return replace(planned, plan=replace(run_plan, partitions=partitions))


def _refused(planned: PartitionPlan, found: Mapping[PartitionKey, Sequence[str]]) -> PartitionPlan:
    if planned.key not in found:
        return planned
    refusal = refusals.contradicted(planned.key, found[planned.key])
    return replace(planned, state=refusal.state, copy=None, verify=Coverage(), what=refusal.what, remedy=refusal.remedy)
