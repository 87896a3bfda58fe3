"""Which records failed: from the ledger, and from the store where the ledger's receipts have expired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka_replication.kafka.quarantine.quarantine_scan import quarantined_records
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.failures import STATES, FailureKind
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange
from kafka_replication.runs.run import Run
from kafka_replication.runs.work.failed_records import remember, store, was_given_back
from kafka_replication.watermarks.failed import (
    OPEN,
    QUARANTINED,
    FailedId,
    FailedRow,
    Step,
    is_within,
    with_decisions,
)

EVERY_OFFSET = OffsetRange(0, MAX_OFFSET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which failed records are meant; what is not given means all."""

    topic: str | None = None
    partition: int | None = None
    offsets: OffsetRange = EVERY_OFFSET
    kind: FailureKind | None = None
    states: Collection[str] = OPEN

    def of(self, key: PartitionKey) -> bool:
        """Whether records of this partition can be meant."""
        return self.topic in (None, key.source.topic) and self.partition in (None, key.source.partition)

    @property
    def history(self) -> bool:
        """Whether records in every state are meant."""
        return set(self.states) == set(STATES)

    def has(self, row: FailedRow) -> bool:
        return (
            self.of(row.key)
            and row.record.offset in self.offsets
            and self.kind in (None, row.record.kind)
            and row.state in self.states
        )


def failed_records(run: Run, selection: Selection) -> list[FailedRow]:
    """The failed records that are meant, in order. The store gets what it did not know.

    A reset copies everything again, so what was open in an earlier generation is only history.
    """
    view = run.view()
    keys = [key for key in view.positions if selection.of(key)]
    rows = dict(remember(run, view, run.clusters.ledger.receipts(dict.fromkeys(keys)), keys))
    rows |= _found_in_quarantine(run, view, keys, rows)
    meant = [row for _, row in sorted(rows.items()) if selection.has(row)]
    return [row for row in meant if selection.history or not row.is_open or not _is_earlier(row, view)]


def _is_earlier(row: FailedRow, view: LedgerView) -> bool:
    return row.key in view.positions and row.generation < view.positions[row.key].generation


def _found_in_quarantine(
    run: Run, view: LedgerView, keys: Collection[PartitionKey], rows: Mapping[FailedId, FailedRow]
) -> Mapping[FailedId, FailedRow]:
    """Records that neither a receipt nor the store knows any more, and that the store should have: the ledger says how
    many.

    What was skipped is nowhere else, and stays a number.
    """
    seconds = run.replication.retention.history
    known = Counter((row.key, row.generation) for row in rows.values() if row.is_kept(seconds))
    found = dict[FailedId, FailedRow]()
    for key in keys:
        position = view.positions[key]
        if _kept(view, key, seconds) > known[key, position.generation]:
            topic, stall = run.replication.quarantine_topic, run.replication.copying.stall_timeout
            admin, handled = run.clusters.target_admin, view.handled.get(key, ())
            for record, time in quarantined_records(run.clusters.target, admin, topic, key, position.generation, stall):
                step = Step(time, QUARANTINED, "")
                row = FailedRow(key=key, generation=position.generation, record=record, history=(step,))
                if row.id not in rows and not was_given_back(row, view):
                    found[row.id] = with_decisions(row, handled)
    store(run, found.values())
    return {id_: row for id_, row in found.items() if row.is_kept(seconds)}


def _kept(view: LedgerView, key: PartitionKey, seconds: float) -> int:
    """How many failed records of the partition the store keeps: open ones, and those decided about lately."""
    generation = view.positions[key].generation
    lately = (entry for entry in view.handled_in(key, generation) if is_within(seconds, entry.time))
    decided = Coverage.of(range_ for entry in lately for range_ in entry.decided)
    return view.undecided(key) + decided.span
