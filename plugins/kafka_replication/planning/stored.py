"""Compares the watermark store with the ledger. If it has less, it may be another store than that of the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.planning.findings import Finding


def unknown_to_store(view: LedgerView, watermarks: Mapping[PartitionKey, int]) -> list[PartitionKey]:
    """The partitions whose watermark in the store is below the verified end in the ledger."""
    return sorted(
        key for key, position in view.positions.items() if view[key].watermark() > watermarks.get(key, position.start)
    )


def store_finding(unknown: Sequence[PartitionKey], partitions: int) -> Finding | None:
    """A warning about the ``unknown`` ones of so many partitions. A run that is at work may be about to store them."""
    if not unknown:
        return None
    what = (
        f"{len(unknown)} of {partitions} partitions are verified further in the ledger than this store knows, such as"
        f" {unknown[0].source}"
    )
    remedy = (
        "name the store of the DAGs (KAFKA_REPLICATION_STORE_URL); if it is this one, the next run restores it, or"
        f" kafka-replication ledger {unknown[0].replication}.yaml --rebuild-store"
    )
    return Finding("warning", "watermark store", what, remedy)
