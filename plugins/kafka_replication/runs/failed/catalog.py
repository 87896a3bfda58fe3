"""Lists the records that failed: from the ledger, and from the store where the ledger's receipts have expired."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.failures import STATES, FailureKind
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange
from kafka_replication.runs.replicate.failed_records import store
from kafka_replication.runs.run import Run
from kafka_replication.watermarks.failed import (
    OPEN,
    QUARANTINED,
    FailedId,
    FailedRow,
    Step,
    is_within,
    rows_of,
)

EVERY_OFFSET = OffsetRange(0, MAX_OFFSET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A selection of failed records; a field that is not given means all."""

    topic: str | None = None
    partition: int | None = None
    offsets: OffsetRange = EVERY_OFFSET
    kind: FailureKind | None = None
    states: Collection[str] = OPEN

    def of(self, key: PartitionKey) -> bool:
        """True if records of this partition can be meant."""
        return self.topic in (None, key.source.topic) and self.partition in (None, key.source.partition)

    @property
    def history(self) -> bool:
        """True if records in every state are meant."""
        return set(self.states) == set(STATES)

    def has(self, row: FailedRow) -> bool:
        return (
            self.of(row.key)
            and row.record.offset in self.offsets
            and self.kind in (None, row.record.kind)
            and row.state in self.states
        )


def failed_records(run: Run, view: LedgerView, selection: Selection) -> list[FailedRow]:
    """The failed records that are meant, in order. The store gets what it did not know.

    A reset copies everything again, so what was open in an earlier generation is only history. The store also has
    records of partitions that the ledger has lost.
    """
    keys = [key for key in view.positions if selection.of(key)]
    receipts = run.clusters.ledger.receipts(dict.fromkeys(keys))
    stored = {row.id: row for row in run.store.failed(run.replication.name) if selection.of(row.key)}
    by_key: dict[PartitionKey, list[FailedRow]] = {key: [] for key in keys}
    for row in stored.values():
        by_key.setdefault(row.key, []).append(row)
    rows = dict[FailedId, FailedRow]()
    for key, some in by_key.items():
        of_key = rows_of(view, key, receipts if key in view.positions else None, some)
        rows |= {**of_key, **_found_in_quarantine(run, view, key, of_key)}
    store(run, (row for id_, row in rows.items() if row != stored.get(id_)))
    meant = [row for _, row in sorted(rows.items()) if selection.has(row)]
    return [row for row in meant if selection.history or not row.is_open or not _is_earlier(row, view)]


def _is_earlier(row: FailedRow, view: LedgerView) -> bool:
    return row.key in view.positions and row.generation < view.positions[row.key].generation


def _found_in_quarantine(
    run: Run, view: LedgerView, key: PartitionKey, rows: Mapping[FailedId, FailedRow]
) -> Mapping[FailedId, FailedRow]:
    """Records that neither a receipt nor the store knows any more, and that the store should have: the ledger says how
    many.

    What was skipped is nowhere else, and stays a number.
    """
    if key not in view.positions:
        return {}
    seconds, generation = run.replication.retention.history, view.positions[key].generation
    kept = sum(row.generation == generation and row.is_kept(seconds) for row in rows.values())
    if _kept(view, key, seconds) <= kept:
        return {}
    with run.clusters.target.quarantine() as quarantine:
        found = [
            FailedRow(key=key, generation=generation, record=record, history=(Step(time, QUARANTINED, ""),))
            for record, time in quarantine.records(run.replication.quarantine_topic, key, generation)
        ]
    left = rows_of(view, key, known=[row for row in found if row.id not in rows])
    return {id_: row for id_, row in left.items() if row.is_kept(seconds)}


def _kept(view: LedgerView, key: PartitionKey, seconds: float) -> int:
    """The number of failed records of the partition that the store keeps: open ones, and those decided about lately."""
    lately = (entry for entry in view[key].handled if is_within(seconds, entry.time))
    decided = Coverage.of(range_ for entry in lately for range_ in entry.decided)
    return view[key].undecided() + decided.span
