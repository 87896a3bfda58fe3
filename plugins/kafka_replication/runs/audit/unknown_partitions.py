"""Audits partitions that were copied, and that the ledger does not know any more."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.planning.partitions import refusals
from kafka_replication.reporting.audit import PartitionAudit
from kafka_replication.runs.run import Run


def unknown_to_ledger(run: Run, view: LedgerView) -> Mapping[PartitionKey, PartitionAudit]:
    """The partitions that have a watermark in the store and no position, each with an error that says what stands on
    the target. Nothing can be compared there: nothing says which records of the target are ours.
    """
    marks = run.store.watermarks(run.replication.name)
    unknown = {key: mark for key, mark in marks.items() if key not in view.positions}
    logs = run.clusters.target.standing.logs({key.target for key in unknown})  # without those that do not answer
    results = dict[PartitionKey, PartitionAudit]()
    for key, mark in sorted(unknown.items()):
        refusal, there = refusals.ledger_lost(key, mark.offset), logs.get(key.target)
        standing = f"{key.target} on the target holds offsets {there}, and nothing says which of them are ours"
        if there is None:
            standing = f"{key.target} on the target is gone or does not answer"
        elif not there.span:
            standing = f"{key.target} on the target is empty"
        results[key] = PartitionAudit(key=key, generation=mark.generation, range=OffsetRange(0, 0))
        results[key].errors.append(f"{refusal.what}; {standing}. Remedy: {refusal.remedy}")
    return results
