"""Keeps the store's table of failed records: a copy of what the ledger says, which outlives the ledger's receipts."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.runs.run import Run
from kafka_replication.watermarks.failed import FailedRow, rows_of


def note(run: Run, view: LedgerView, receipts: Receipts, keys: Collection[PartitionKey]) -> None:
    """Write to the store what these receipts say of failed records. The store joins it with its rows."""
    store(run, [row for key in keys for row in rows_of(view, key, receipts).values()])


def store(run: Run, rows: Iterable[FailedRow]) -> None:
    """Write these rows to the store, without those that it would delete soon, or has deleted."""
    seconds = run.replication.retention.history
    run.store.record_failed([row for row in rows if row.is_kept(seconds)])
