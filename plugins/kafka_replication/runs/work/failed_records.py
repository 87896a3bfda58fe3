"""Keeps the store's table of failed records: a copy of what the ledger says, which outlives the ledger's receipts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.receipts import Receipts, committed
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.runs.run import Run
from kafka_replication.watermarks.failed import FailedId, FailedRow, rows_of, with_decisions


def note(
    run: Run, view: LedgerView, receipts: Receipts, keys: Collection[PartitionKey]
) -> Mapping[FailedId, FailedRow]:
    """Write to the store what these receipts say of failed records, and return it. The store joins it with its rows."""
    ledger = dict[FailedId, FailedRow]()
    for key in keys:
        ledger |= set_aside(view, receipts, key)
    store(run, ledger.values())
    return ledger


def store(run: Run, rows: Iterable[FailedRow]) -> None:
    """Write these rows to the store, without those that it would delete soon, or has deleted."""
    seconds = run.replication.retention.history
    run.store.record_failed([row for row in rows if row.is_kept(seconds)])


def remember(
    run: Run, view: LedgerView, receipts: Receipts, keys: Collection[PartitionKey]
) -> Mapping[FailedId, FailedRow]:
    """All failed records of these partitions that store and ledger know of, and of those that the ledger has lost. The
    store gets what it did not know.

    Of offsets that were given back only a receipt counts: the second copy may have copied what the first one set aside.
    """
    ledger = note(run, view, receipts, keys)
    asked = (row for row in run.store.failed(run.replication.name) if row.key in keys or row.key not in view.positions)
    known = {row.id: row for row in asked}
    rows = {id_: with_decisions(row, view.handled.get(row.key, ())) for id_, row in {**ledger, **known}.items()}
    store(run, (row for id_, row in rows.items() if row != known.get(id_)))
    return {id_: row for id_, row in rows.items() if id_ in ledger or not was_given_back(row, view)}


def set_aside(view: LedgerView, receipts: Receipts, key: PartitionKey) -> Mapping[FailedId, FailedRow]:
    """What these receipts of one partition say of failed records."""
    return rows_of(key, _true_ones(view, receipts, key), view.handled.get(key, ()))


def was_given_back(row: FailedRow, view: LedgerView) -> bool:
    """Whether the record's offset was given back to be copied again, since or before it was set aside."""
    return row.offset in view.given_back(row.key, row.generation)


def _true_ones(view: LedgerView, receipts: Receipts, key: PartitionKey) -> list[Receipt]:
    """The receipts of every generation, without those of attempts that died before they wrote their position."""
    position, every = view.positions.get(key), receipts.all(key)
    if position is None:
        return every
    earlier = [receipt for receipt in every if receipt.generation != position.generation]
    return earlier + committed(receipts.of(key, position.generation), position.coverage)
