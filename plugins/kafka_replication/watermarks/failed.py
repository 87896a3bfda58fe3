"""Failed records: what was set aside, what became of it, and when. The store has a row for each, as the ledger says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime

from kafka_replication.ledger.entries import FailedRecord, Handled, Receipt
from kafka_replication.ledger.receipts import Receipts, committed
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import STATES
from kafka_replication.model.offsets import PartitionKey

QUARANTINED, SKIPPED, RETRIED, DISCARDED = STATES
OPEN = (QUARANTINED, SKIPPED)  # nobody has decided about these


@dataclass(frozen=True, slots=True)
class Step:
    """One step in the life of a failed record. ``time`` is RFC 3339 UTC; ``by`` is empty for what a run did. A decision
    is ``over`` if it was about a copy that was given back, to be copied again.
    """

    time: str
    state: str
    run_id: str
    _: KW_ONLY
    by: str = ""
    reason: str = ""
    over: bool = False


@dataclass(frozen=True, slots=True, order=True)
class FailedId:
    """Identifies one failed record."""

    key: PartitionKey
    generation: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRow:
    """One failed record. Its state is that of the last step that is not over."""

    key: PartitionKey
    generation: int
    record: FailedRecord
    history: tuple[Step, ...]

    @property
    def id(self) -> FailedId:
        return FailedId(self.key, self.generation, self.offset)

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def state(self) -> str:
        return next(step.state for step in reversed(self.history) if not step.over)

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @property
    def decided_at(self) -> str:
        """The time at which it was retried or discarded (RFC 3339); empty while it is open."""
        return "" if self.is_open else self.history[-1].time

    @property
    def decided_by(self) -> str:
        """By whom and when it was decided about, for a sentence; empty while it is open."""
        return "" if self.is_open else f"by {self.history[-1].by or 'nobody named'} before ({self.decided_at})"

    def is_kept(self, seconds: float) -> bool:
        """True if the store keeps the row for now: it is open, or was decided about in the last ``seconds``."""
        return self.is_open or is_within(seconds, self.decided_at)

    def joined(self, other: FailedRow) -> FailedRow:
        """The row with what both know of the same record. A valid decision comes last, whatever the clocks say."""
        known = dict[tuple[str, str], Step]()
        for step in (*other.history, *self.history):
            before = known.get((step.state, step.run_id), step)
            known[step.state, step.run_id] = replace(step, over=step.over or before.over)
        steps = sorted(known.values(), key=lambda step: (step.state not in OPEN and not step.over, step.time))
        return replace(self, history=tuple(steps))


def rows_of(
    view: LedgerView, key: PartitionKey, receipts: Receipts | None = None, known: Iterable[FailedRow] = ()
) -> Mapping[FailedId, FailedRow]:
    """The failed records of one partition, with what was decided about each. Only here they are put together.

    They are those that ``receipts`` name (None: none were read), and those ``known`` from elsewhere: receipts expire.
    Of offsets that were given back only a receipt counts: the second copy may have copied what the first one set aside.
    """
    handled = view.handled.get(key, ())
    named = [row for receipt in _committed(view, key, receipts) for row in _set_aside(key, receipt, handled)]
    ids = {row.id for row in named}
    there = (
        row for row in known if row.id in ids or row.offset not in view.of(key, row.generation).removed.recopy_allowed
    )
    rows = dict[FailedId, FailedRow]()
    for row in (*there, *named):
        rows[row.id] = row.joined(rows[row.id]) if row.id in rows else row
    return {id_: with_decisions(row, handled) for id_, row in rows.items()}


def _committed(view: LedgerView, key: PartitionKey, receipts: Receipts | None) -> list[Receipt]:
    """The receipts of every generation, without those of attempts that died before they wrote their position."""
    position = view.positions.get(key)
    if receipts is None or position is None:
        return receipts.all(key) if receipts else []
    earlier = [receipt for receipt in receipts.all(key) if receipt.generation != position.generation]
    return earlier + committed(receipts.of(key, position.generation), position.coverage)


def _set_aside(key: PartitionKey, receipt: Receipt, handled: Iterable[Handled]) -> Iterator[FailedRow]:
    for record in receipt.failures:
        state = SKIPPED if record.place is None else QUARANTINED
        over = _decisions(receipt.generation, record.offset, handled, over=True)
        steps = (*over, Step(receipt.time, state, receipt.run_id))
        yield FailedRow(key=key, generation=receipt.generation, record=record, history=steps)


def with_decisions(row: FailedRow, handled: Iterable[Handled]) -> FailedRow:
    """The row with what these entries decide about it."""
    decisions = tuple(_decisions(row.generation, row.offset, handled))
    return row.joined(replace(row, history=(*row.history, *decisions))) if decisions else row


def _decisions(generation: int, offset: int, handled: Iterable[Handled], *, over: bool = False) -> Iterator[Step]:
    """The decisions about this copy of the record; or, if that is ``over``, about copies that were given back."""
    for entry in handled:
        if entry.generation == generation and offset in (entry.given_back if over else entry.decided):
            yield Step(entry.time, entry.state, entry.run_id, by=entry.by, reason=entry.reason, over=over)


def is_within(seconds: float, time: str) -> bool:
    """True if this time (RFC 3339) is at most so many seconds ago."""
    return (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds() <= seconds
