"""Audits partitions that were copied, and that the ledger does not know any more."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.planning.partitions import refusals
from kafka_replication.reporting.audit import PartitionAudit
from kafka_replication.runs.run import Run


def unknown_to_ledger(run: Run, view: LedgerView) -> Mapping[PartitionKey, PartitionAudit]:
    """The partitions that have a watermark in the store and no position, each with an error that says what stands on
    the target. Nothing can be compared there: nothing says which records of the target are ours.
    """
    marks = run.store.watermarks(run.replication.name)
    unknown = {key: mark for key, mark in marks.items() if key not in view.positions}
    logs = _on_target(run, {key.target for key in unknown})
    return {
        key: _result(key, mark.generation, mark.offset, logs.get(key.target)) for key, mark in sorted(unknown.items())
    }


def _result(key: PartitionKey, generation: int, watermark: int, there: OffsetRange | None) -> PartitionAudit:
    result = PartitionAudit(key=key, generation=generation, range=OffsetRange(0, 0))
    refusal = refusals.ledger_lost(key, watermark)
    standing = f"{key.target} on the target holds offsets {there}, and nothing says which of them are ours"
    if there is None:
        standing = f"{key.target} on the target is gone or does not answer"
    elif not there.span:
        standing = f"{key.target} on the target is empty"
    result.errors.append(f"{refusal.what}; {standing}. Remedy: {refusal.remedy}")
    return result


def _on_target(run: Run, wanted: set[TopicPartition]) -> Mapping[TopicPartition, OffsetRange]:
    """The readable offsets of these target partitions, without those that do not answer."""
    return run.clusters.target.standing.logs(wanted)
