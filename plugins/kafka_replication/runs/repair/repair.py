"""Repairs entries that contradict each other: proposes what the receipts prove, and writes it after an approval."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from kafka_replication import documents
from kafka_replication.ledger.contradictions import of_entries, of_position, of_receipts, target_ends
from kafka_replication.ledger.entries import Handled, Position, Receipt, Removed, Verified
from kafka_replication.ledger.placement import Spread, chooser_of
from kafka_replication.ledger.port import Damaged
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import ASIDE, LedgerView
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey, verified_id
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.runs.run import LeasedRun, Run

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """The contradiction in the entries of one partition, and the entries to write. ``before`` is None if the position
    cannot be read.

    ``unproven`` are offsets without a receipt, because it may have expired. They stay copied if the position, or the
    order of copying, says that they were; if the position cannot be read, they are below its new start.
    """

    key: PartitionKey
    wrong: tuple[str, ...]
    before: Position | None
    after: Position
    verified: Verified | None  # the entry to write; None if it does not change, or does not exist
    unproven: Coverage

    def as_json(self) -> documents.RepairRow:
        return {
            "topic": self.key.source.topic,
            "partition": self.key.source.partition,
            "target_topic": self.key.target_topic,
            "wrong": list(self.wrong),
            "before": _as_json(self.before) if self.before else None,
            "after": _as_json(self.after),
            "not_proven": self.unproven.encode(),
        }

    def __str__(self) -> str:
        was = _text(self.before) if self.before else "unreadable"
        wrong = "".join(f"\n  {text}" for text in self.wrong)
        return f"{self.key}{wrong}\n  position now:      {was}\n  receipts prove:    {_text(self.after)}{self._doubt()}"

    def _doubt(self) -> str:
        if not self.unproven:
            return ""
        doubt = f"{self.unproven} stays copied: its receipts may have expired"
        if self.before is None:
            doubt = f"it is unknown if {self.unproven} were copied: compare both sides before you backfill there"
        return f"\n  not proven:        {doubt}"


def _as_json(position: Position) -> documents.ReceiptPosition:
    document: documents.ReceiptPosition = {
        "next_offset": position.next_offset,
        "coverage": position.coverage.encode(),
        "target_end": position.target_end,
    }
    if position.spread:
        document["ends"] = list(position.spread.ends)
    return document


def _text(position: Position) -> str:
    return f"next {position.next_offset}, on the target {position.coverage}, ours end at {_ends_text(position)}"


def _ends_text(position: Position) -> str:
    return ", ".join(map(str, position.spread.ends)) if position.spread else str(position.target_end)


def proposals(run: Run) -> list[Repair]:
    """The proposed repairs. Changes nothing. Reads all receipts.

    Raises Refused for a position that cannot be read and has no receipt left.
    """
    damaged: Damaged = {}
    view = run.clusters.ledger.view(damaged)
    for (kind, key), error in damaged.items():
        if kind not in ("position", "verified"):
            raise Refused(f"{key}: {error.what}", error.remedy)
    keys = sorted({*view.positions, *(key for _, key in damaged)})
    receipts = run.clusters.ledger.receipts(dict.fromkeys(keys))
    return [repair for key in keys if (repair := _proposal(key, view, receipts, damaged))]


def _proposal(key: PartitionKey, view: LedgerView, receipts: Receipts, damaged: Damaged) -> Repair | None:
    before = view.positions.get(key)
    unreadable = [damaged[kind, key].what for kind in ("position", "verified") if (kind, key) in damaged]
    if before is None:
        assumed = _assumed(key, receipts, unreadable)
        view = replace(view, positions={**view.positions, key: assumed})
    # Receipts of verified ranges may have expired; it matters only whether others have.
    pending = replace(receipts, since={**receipts.since, key: view.receipts_from(key) or 0})
    wrong = [] if before is None else [*of_entries(key, view), *of_receipts(key, view, pending)]
    if not (unreadable or wrong):
        return None
    after, unproven = proven(key, view, receipts, readable=before is not None)
    verified = _less(key, view, after)
    if ("verified", key) in damaged:  # everything is read back again
        verified = Verified(generation=after.generation, coverage=Coverage(), level="digest", run_id="", time="")
    return Repair(
        key=key, wrong=(*unreadable, *wrong), before=before, after=after, verified=verified, unproven=unproven
    )


def _assumed(key: PartitionKey, receipts: Receipts, unreadable: Iterable[str]) -> Position:
    """A position of the newest generation that has receipts, as if nothing had been copied yet."""
    generation = max(receipts.generations(key), default=0)
    chunks = receipts.of(key, generation)
    if not chunks:
        raise Refused(
            f"{key.source}: {'; '.join(unreadable)}; no receipt is left that proves what was copied",
            f"reset {key.source.topic}",
        )
    newest, start = max(chunks, key=lambda receipt: receipt.time), min(receipt.range.from_ for receipt in chunks)
    return Position(generation=generation, ids=newest.ids, start=start, next_offset=start, delivery=newest.delivery)


def proven(key: PartitionKey, view: LedgerView, receipts: Receipts, *, readable: bool) -> tuple[Position, Coverage]:
    """The position that receipts and approvals prove, and the offsets that are not proven; see `Repair`. If the ledger
    has no error, it is the present position, except for the leader epoch.
    """
    position = view.positions[key]
    generation = position.generation
    chunks: Sequence[Receipt] = of_position(position, receipts.of(key, generation))
    coverage = Coverage.of(receipt.range for receipt in chunks)
    coverage = coverage.union(view.given_up(key, generation)).union(view.unproven(key, generation))
    passed = position.next_offset
    if entry := view.removal(key, generation):
        coverage, passed = coverage.union(entry.coverage), max(passed, entry.passed)
    if receipts.incomplete(key):
        coverage = coverage.union(view.read_back(key, generation))
    start, unproven = min(position.start, position.next_offset), Coverage()
    if receipts.expired(key, view.receipts_from(key)):
        if readable:
            unproven = _without_receipt(key, view, chunks).subtract(coverage)
            coverage = coverage.union(unproven)
        else:  # The start is behind all offsets that may be on the target, so that no run copies them a second time.
            start = coverage.ranges[-1].from_
            unproven = Coverage(coverage.missing_from(OffsetRange(0, start)))
    given_back = view.given_back(key, generation).within(OffsetRange(0, passed))
    after = replace(
        position,
        start=start,
        next_offset=coverage.union(given_back).contiguous_end(start),
        coverage=coverage,
        leader_epoch=None,
        **_ends(key, position, [*chunks, *_retried(key, view, position)], view.removal(key, generation)),
        **({} if receipts.incomplete(key) else _set_aside(chunks)),
    )
    return after, unproven


def _without_receipt(key: PartitionKey, view: LedgerView, chunks: Iterable[Receipt]) -> Coverage:
    """The copied offsets without a receipt: those in the position, and all between its end and the first receipt that
    it does not know. Runs copy in the order of the offsets.
    """
    position = view.positions[key]
    newer = (receipt.range.from_ for receipt in chunks if position.left_of(receipt.range))
    between = OffsetRange(position.next_offset, max(position.next_offset, min(newer, default=0)))
    given_back = view.given_back(key, position.generation)
    return position.coverage.union(Coverage.of([between]).subtract(given_back))


def _retried(key: PartitionKey, view: LedgerView, position: Position) -> list[Handled]:
    """The retried records, which were copied behind the chunks."""
    return [entry for entry in view.handled_in(key, position.generation, "retried") if entry.ids == position.ids]


def _set_aside(chunks: Iterable[Receipt]) -> dict[str, Any]:
    return {name: sum(getattr(receipt, name) for receipt in chunks) for name in ASIDE}


def _ends(
    key: PartitionKey, position: Position, entries: Sequence[Receipt | Handled], removal: Removed | None
) -> dict[str, Any]:
    """The ends of our records on the target, as these entries prove them. What retention removed was ours, up to where
    the position says so, also if its receipts were given back.
    """
    ends = target_ends(entries)
    if removal is not None:
        ours = position.ends(key.source.partition)
        ends = {number: max(end, min(ours.get(number, 0), removal.start(number))) for number, end in ends.items()}
    choosers = [by for entry in entries if (by := chooser_of(entry.placement))]
    if choosers:
        recorded = position.ends(key.source.partition) if position.spread else {}
        proven = (ends.get(number, recorded.get(number, 0)) for number in range(choosers[-1].partitions))
        return {"spread": Spread(choosers[-1], tuple(proven))}
    return {"target_end": ends.get(key.source.partition, 0) or position.target_end}


def _less(key: PartitionKey, view: LedgerView, after: Position) -> Verified | None:
    """The verified entry without offsets that were never copied; None if it does not change."""
    entry = view.verified.get(key)
    if entry is None or entry.generation != after.generation or not entry.coverage.subtract(after.coverage):
        return None
    return replace(entry, coverage=entry.coverage.intersection(after.coverage))


def carry_out(run: LeasedRun, repairs: Iterable[Repair]) -> None:
    """Write the proposed entries, each partition in one transaction of its own id.

    Raises Refused if a position is no longer as it was shown.
    """
    repairs = list(repairs)
    with closing(run.writer(verified_id(run.replication.name), "what is verified")) as writer:
        writer.fence()
    for repair in repairs:
        run.check()
        with closing(run.session(repair.key)) as session:
            session.fence()
            now = session.ledger.view({}).positions.get(repair.key)
            if now != repair.before:
                raise Refused(f"{repair.key.source}: its position changed meanwhile", "start the command again")
            session.transaction.begin()
            session.ledger.write(session.transaction, repair.key, repair.after)
            if repair.verified is not None:
                session.ledger.write(session.transaction, repair.key, repair.verified)
            session.transaction.commit()
        log.info("%s was repaired: %s", repair.key, _text(repair.after))
