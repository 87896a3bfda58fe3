"""Copies that the target no longer has: which source offsets they are, and whether the target's retention explains it.

Target offsets of one key only rise, in the order of its receipts. What is below the target's log start is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_replication.ledger.entries import Position, Receipt, Removed
from kafka_replication.ledger.placement import Segment
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model import commands
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange
from kafka_replication.planning.snapshot import PartitionOffsets, Topic


@dataclass(frozen=True, slots=True)
class Retention:
    """The limits of a target topic that deletes old records; None is no limit. In ms and bytes."""

    millis: int | None
    bytes: int | None

    @classmethod
    def of(cls, topic: Topic) -> Retention:
        if "delete" not in topic.config.get("cleanup.policy", "delete"):
            return cls(None, None)
        return cls(_limit(topic, "retention.ms"), _limit(topic, "retention.bytes"))


def _limit(topic: Topic, name: str) -> int | None:
    value = int(topic.config.get(name, -1))
    return value if value >= 0 else None


def may_be_gone(key: PartitionKey, view: LedgerView, target: Topic | None) -> bool:
    """Whether the target's log start has moved over offsets of ours since it was looked at last."""
    position = view.positions[key]
    offsets = offsets_on(key, position, target)
    if offsets is None:
        return False
    known = view.removal(key, position.generation)
    return min(offsets.log_start, position.target_end) > (known.target_start if known else 0)


def offsets_on(key: PartitionKey, position: Position, target: Topic | None) -> PartitionOffsets | None:
    """The offsets of the key's target partition, if it answers and is the one that the position means."""
    if target is None or target.topic_id != position.ids.target_topic:
        return None
    return target.readable.get(key.target.partition)


def expected_end(key: PartitionKey, view: LedgerView) -> int:
    """Where the target ends if nobody but us wrote there: after our last record and its transaction marker.

    Aborted transactions can lie behind it.
    """
    position = view.positions[key]
    wrote = position.coverage.subtract(view.lost(key, position.generation))
    return position.target_end + 1 if position.target_end and wrote else position.target_end


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What is needed to say what is gone: the receipts from `Removed.receipts_from` on, and the target's log start.

    ``young`` is the first source offset whose record is too young to be removed by ``retention.ms``; None if the source
    does not tell.
    """

    receipts: Receipts
    log_start: int
    retention: Retention
    young: int | None
    run_id: str
    time: str


def removed(key: PartitionKey, view: LedgerView, looked: Looked) -> Removed:
    """The entry about this key as it is now."""
    position = view.positions[key]
    known = view.removal(key, position.generation) or Removed(
        generation=position.generation,
        target_start=0,
        coverage=Coverage(),
        unexplained=Coverage(),
        again=Coverage(),
        passed=0,
        run_id=looked.run_id,
        time=looked.time,
    )
    gone = _gone(key, view, looked).subtract(known.coverage)
    return replace(
        known,
        target_start=looked.log_start,
        coverage=known.coverage.union(gone),
        unexplained=known.unexplained.union(gone.subtract(_explained(looked))),
        run_id=looked.run_id,
        time=looked.time,
        receipts_from=_first_that_stays(key, position.generation, looked),
    )


def _gone(key: PartitionKey, view: LedgerView, looked: Looked) -> Coverage:
    """The source offsets of copies below the log start that are still counted as copied."""
    position = view.positions[key]
    receipts = looked.receipts.of(key, position.generation)
    there = Coverage.of(part for receipt in receipts if (part := gone_of(receipt, looked.log_start)))
    first = min((segment.first for receipt in receipts for segment in receipt.segments), default=position.target_end)
    if looked.receipts.incomplete(key) and looked.log_start >= first:
        # Receipts expire in the order of the copies: those without one lie before the first that has one.
        there = there.union(_without_receipt(key, view, receipts))
    return there.intersection(position.coverage)


def _without_receipt(key: PartitionKey, view: LedgerView, receipts: list[Receipt]) -> Coverage:
    position = view.positions[key]
    known = view.removal(key, position.generation)
    elsewhere = view.lost(key, position.generation).union(known.coverage if known else Coverage())
    return position.coverage.subtract(Coverage.of(receipt.range for receipt in receipts)).subtract(elsewhere)


def gone_of(receipt: Receipt, log_start: int) -> OffsetRange | None:
    """The part of a chunk that is below the log start. Of a chunk that has offsets without records, and is gone in
    part, this is the smallest part that it can be.
    """
    lost = sum(records_below(segment, log_start) for segment in receipt.segments)
    if not lost:
        return None
    whole = lost == sum(segment.count for segment in receipt.segments)
    return receipt.range if whole else OffsetRange(receipt.range.from_, receipt.range.from_ + lost)


def records_below(segment: Segment, log_start: int) -> int:
    """How many of the segment's records lie below this offset. The records of a segment have no holes between them."""
    return max(0, min(log_start, segment.last + 1) - segment.first)


def _first_that_stays(key: PartitionKey, generation: int, looked: Looked) -> int:
    """The offset of the first receipt with a copy that is still there; where reading ended if there is none."""
    stays = (
        stored.offset
        for stored in looked.receipts.stored[key]
        if stored.receipt.generation == generation
        and any(segment.last >= looked.log_start for segment in stored.receipt.segments)
    )
    return min(stays, default=looked.receipts.ends[key.ledger_partition])


def _explained(looked: Looked) -> Coverage:
    """The source offsets whose copies the target may have removed by its own limits, as far as can be known."""
    everything = Coverage.of([OffsetRange(0, MAX_OFFSET)])
    if looked.retention.bytes is not None:
        return everything
    if looked.retention.millis is None:
        return Coverage()
    return everything if looked.young is None else Coverage.of([OffsetRange(0, looked.young)])


def removal_text(key: PartitionKey, removed_: Coverage, missed: Coverage) -> str:
    """Which offsets are gone, and why as far as it is known. ``missed`` are those that nothing explains."""
    text = f"no longer on the target: {removed_} of {key.source} ({removed_.span} offsets; {key.target})"
    if missed == removed_:
        return text
    return f"{text}; " + (f"not explained: {missed}" if missed else "its retention, or an approval, explains it")


def missed_text(key: PartitionKey, offsets: Coverage) -> str:
    """Which offsets are gone although they should be there."""
    return f"no longer on the target: {offsets} of {key.source} ({offsets.span} offsets; {key.target})"


def remedy(key: PartitionKey, offsets: OffsetRange, log_start: int | None) -> str:
    """What can be done about offsets that are gone. ``log_start`` is the source's; None if it is not known."""
    given_up = f"accept it: {commands.approve_gap(key, offsets)}"
    readable = offsets.intersection(OffsetRange(log_start or 0, MAX_OFFSET))
    if readable is None:
        return f"the source no longer has them either; {given_up}"
    return f"copy them again: {commands.backfill(key, readable)}, with --dry-run first; or {given_up}"
