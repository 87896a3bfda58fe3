"""Which records failed: from the ledger, and from the store where the ledger's receipts have expired."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.failures import FailureKind
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import MAX_OFFSET, OffsetRange
from kafka_replication.runs.run import Run
from kafka_replication.watermarks.failed import OPEN, FailedId, FailedRow, rows_of, with_decisions

EVERY_OFFSET = OffsetRange(0, MAX_OFFSET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which failed records are meant; what is not given means all."""

    topic: str | None = None
    partition: int | None = None
    offsets: OffsetRange = EVERY_OFFSET
    kind: FailureKind | None = None
    states: Collection[str] = OPEN

    def has(self, row: FailedRow) -> bool:
        source = row.key.source
        return (
            self.topic in (None, source.topic)
            and self.partition in (None, source.partition)
            and row.record.offset in self.offsets
            and self.kind in (None, row.record.kind)
            and row.state in self.states
        )


def failed_records(run: Run, selection: Selection) -> list[FailedRow]:
    """The failed records that are meant, in order. The store gets what it did not know."""
    view = run.view()
    receipts = run.clusters.ledger.receipts(dict.fromkeys(view.positions))
    rows = remember(run, view, receipts, list(view.positions))
    return [row for _, row in sorted(rows.items()) if selection.has(row)]


def remember(
    run: Run, view: LedgerView, receipts: Receipts, keys: Collection[PartitionKey]
) -> Mapping[FailedId, FailedRow]:
    """Write to the store what these receipts say of failed records. Returns all that store and ledger know of."""
    known = {row.id: row for row in run.store.failed(run.replication.name)}
    ledger = dict[FailedId, FailedRow]()
    for key in keys:
        ledger |= rows_of(key, receipts.all(key), view.handled.get(key, ()))
    expired = {id_: with_decisions(row, view.handled.get(row.key, ())) for id_, row in known.items()}
    merged = {id_: row.joined(known[id_]) if id_ in known else row for id_, row in ({**expired, **ledger}).items()}
    run.store.record_failed([row for id_, row in merged.items() if row != known.get(id_)])
    return merged
