"""The account of one partition: what all of its ledger entries in one generation say together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafka_replication.ledger.entries import (
    POSITIONS,
    Entry,
    Gap,
    Handled,
    Position,
    Receipt,
    Removed,
    Returned,
    Verified,
)
from kafka_replication.ledger.placement import UnknownPlacement, end_of, ends_of
from kafka_replication.ledger.receipts import Receipts, committed
from kafka_replication.model.choices import EXACTLY_ONCE, Delivery
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition

NONE: Final = "none"  # the level of what was not verified
ASIDE: Final = ("quarantined", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One operation on a partition's entries, as a value: what one transaction writes, in this order, and then deletes.

    ``expects`` is the position that it was made from, if that was read before the transaction's id was fenced.
    """

    key: PartitionKey
    write: tuple[Entry, ...]
    delete: tuple[Receipt, ...] = ()
    expects: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The entries of one partition in one generation, without its receipts: methods that need them are given those that
    were read. An entry that the ledger does not have is an empty one here.
    """

    key: PartitionKey
    position: Position
    verified: Verified
    removed: Removed  # copies that the target no longer has
    gaps: tuple[Gap, ...] = ()
    handled: tuple[Handled, ...] = ()  # the decisions about records that were set aside, in order

    @property
    def level(self) -> str:
        """The level at which the copies were verified: ``digest``, ``count``, or ``none`` if nothing was."""
        return self.verified.level if self.verified.coverage else NONE

    def verified_with(self, more: Coverage, *, level: str, run_id: str, time: str) -> Verified:
        """The entry to write once ``more`` was read back, at ``level``. Its level is ``count`` if any part was only
        counted.
        """
        weakest, coverage = "count" if self.verified.level == "count" else level, self.verified.coverage.union(more)
        return replace(self.verified, coverage=coverage, level=weakest, run_id=run_id, time=time)

    def receipts_from(self, planned: int | None = None) -> int | None:
        """An offset in the receipts topic: all receipts of this generation below it are verified. None if that is not
        known, because an earlier version wrote the entries. ``planned`` is such an offset from elsewhere.
        """
        recorded = (self.position.receipts_from, self.verified.receipts_from, planned)
        return max((offset for offset in recorded if offset is not None), default=None)

    def given_up(self) -> Coverage:
        """The offsets that this direction never copied: given up by approval, or returned."""
        return Coverage.of(gap.range for gap in self.gaps if not gap.copied)

    @property
    def turn(self) -> Returned | None:
        """The latest turn; None if the direction never went on behind a seal of the other one."""
        return max((gap.returned for gap in self.gaps if gap.returned), key=lambda turn: turn.target, default=None)

    @property
    def others_until(self) -> int:
        """The target offset below which records of others lie, behind which this direction was opened."""
        adopted, turn = self.position.adopted, self.turn
        return max(adopted.target_until if adopted else 0, turn.target.until if turn else 0)

    def unproven(self) -> Coverage:
        """The offsets that were copied, but whose verification was given up by approval."""
        return Coverage.of(gap.range for gap in self.gaps if gap.copied).subtract(self.removed.recopy_allowed)

    def gone(self) -> Coverage:
        """The offsets that were on the target once and are not there now."""
        return self.removed.coverage.union(self.removed.lost_above_start).union(self._not_again())

    def missed(self) -> Coverage:
        """The part of `gone` that neither the target's retention explains nor an approval accepts.

        What was not read back before it was gone is missed in any case: nothing says that it was there.
        """
        missed = self.removed.unexplained.union(self.removed.lost_above_start).subtract(self.unproven())
        return missed.union(self.gone_unverified()).union(self._not_again())

    def gone_unverified(self) -> Coverage:
        """The offsets that were gone from the target before they were read back."""
        return self.removed.coverage.union(self.removed.lost_above_start).intersection(self.pending())

    def _not_again(self) -> Coverage:
        return self.removed.recopy_allowed.subtract(self.position.coverage)

    def verified_or_waived(self) -> Coverage:
        """The offsets that the watermark may pass: read back and equal, or given up by approval."""
        return self.verified.coverage.union(self.given_up()).union(self.unproven())

    def pending(self) -> Coverage:
        """The offsets that are on the target, but neither verified nor waived by an approval."""
        return self.position.coverage.subtract(self.verified_or_waived())

    def unverifiable(self, receipts: Receipts, starts: Mapping[int, int]) -> OffsetRange | None:
        """The first range of pending offsets that can no longer be verified; None if there is none. The target deleted
        their records, or their receipts have expired. ``starts`` has its log start by partition.
        """
        of_generation, pending = receipts.of(self.key, self.position.generation), self.pending()
        untold = pending.subtract(Coverage.of(receipt.range for receipt in of_generation))
        # Receipts of copies that are gone were deleted when a part of these was given back.
        expired = untold if receipts.incomplete(self.key) else untold.intersection(self.gone())
        deleted = Coverage.of(
            receipt.range
            for receipt in of_generation
            if pending.contains(receipt.range)
            and any(part.first < starts.get(part.partition, 0) for part in receipt.parts)
        )
        return next(iter(deleted.union(expired)), None)

    def watermark(self) -> int:
        """The offset at which the watermark may stand: the end of the contiguous verified coverage."""
        return self.verified_or_waived().contiguous_end(max(self.position.start, self.removed.watermark_floor))

    def decided(self, state: str) -> Coverage:
        """The offsets that are set aside now, and decided about so; see `Handled`."""
        return _united(entry.decided for entry in self.handled if entry.state == state)

    @property
    def retries(self) -> tuple[Handled, ...]:
        """The decisions by which records that were set aside were copied later."""
        return tuple(entry for entry in self.handled if entry.state == "retried")

    def retried(self) -> Coverage:
        """The offsets that were set aside, and copied later."""
        return _united(entry.offsets for entry in self.retries)

    def retried_at(self) -> Coverage:
        """The offsets of the key's own target partition where records lie that were set aside, and copied later."""
        parts = (part for entry in self.retries for part in entry.parts)
        return _united(part.offsets for part in parts if part.partition == self.key.target.partition)

    def set_aside(self) -> tuple[int, int]:
        """The numbers of records that are quarantined and skipped now, without those that were retried."""
        quarantined, skipped = (_united(getattr(entry, name) for entry in self.retries).span for name in ASIDE)
        return max(0, self.position.quarantined - quarantined), max(0, self.position.skipped - skipped)

    def undecided(self, of: Sequence[str] = ASIDE) -> int:
        """The number of records that are set aside ``of`` these ways and wait for a decision."""
        decided = _united(getattr(entry, name).subtract(entry.given_back) for entry in self.handled for name in of)
        aside: int = sum(getattr(self.position, name) for name in of)
        return max(0, aside - decided.span)

    def deciding(self, decided: Handled) -> tuple[Account, Change]:
        """A person decides about records that were set aside: the account after it, and the change. Its position has
        the new ends of the target, where ``decided`` has a placement. Nothing else moves: these offsets are covered
        already. Without transactions, what an attempt left over may lie before the records: it is still to be
        explained.
        """
        first = decided.offsets.ranges[0].from_
        decided = replace(decided, number=sum(entry.offsets.ranges[0].from_ == first for entry in self.handled))
        position = self.position
        if position.delivery == EXACTLY_ONCE:
            end = max(position.target_end, end_of(decided.placement))
            position = replace(position, target_end=end).placed(decided.placement)
        after = replace(self, position=position, handled=(*self.handled, decided))
        return after, Change(key=self.key, write=(position, decided))

    def giving_up(self, gap: Gap, delivery: Delivery) -> Change:
        """A person gives up these offsets: the position passes them, unless they were copied. Of the profiles of who
        writes that only one without transactions is noted: with them, what a session without them left behind the
        position is still to be explained.
        """
        position = self.position if gap.copied else self.position.adding(gap.range, None, 0)
        if delivery != EXACTLY_ONCE:
            position = replace(position, delivery=delivery)
        return Change(key=self.key, write=(gap, position))

    def contradictions(self) -> list[str]:
        """Entries that cannot all be true: somebody changed the ledger, or a part of it is older. Each is a text that
        names source offsets. Copying from such a position could double or lose records.
        """
        return [f"{self._where}: {text}" for text in self._contradictions()]

    def _contradictions(self) -> Iterator[str]:
        next_, start, coverage = self.position.next_offset, self.position.start, self.position.coverage
        if next_ < start:
            yield f"the position says that it started at {start}, above its next offset {next_}"
            return
        if coverage.contiguous_end(next_) != next_:
            last = coverage.contiguous_end(next_) - 1
            yield f"the position's next offset is {next_}, but its coverage has {last}, too"
        passed = coverage.union(self.removed.recopy_allowed)
        if holes := Coverage(passed.missing_from(OffsetRange(start, next_))):
            yield f"the position's next offset is {next_}, but its coverage lacks {holes}"
        if more := self.verified.coverage.subtract(coverage):
            yield f"{more} are called verified, but the position says that they were never copied"
        if more := self.given_up().subtract(passed):
            yield f"the loss of {more} was approved, but the position does not pass them"

    def contradictions_in(self, receipts: Receipts) -> list[str]:
        """Contradictions between these receipts and the position. ``receipts`` has at least the unverified ones."""
        return [f"{self._where}: {text}" for text in self._contradictions_in(receipts)]

    def _contradictions_in(self, receipts: Receipts) -> Iterator[str]:
        position = self.position
        same_topics = (one for one in receipts.of(self.key, position.generation) if one.ids == position.ids)
        written = committed(same_topics, position.coverage)
        proven = Coverage.of(receipt.range for receipt in written)
        if more := proven.subtract(position.coverage):
            yield f"receipts say that {more} were copied, but the position says that they were not"
        unproven = self.pending().subtract(self.gone()).subtract(proven)
        if unproven and not receipts.incomplete(self.key):
            yield f"the position says that {unproven} were copied, but there is no receipt"
        ends = position.ends(self.key.source.partition)
        for number, end in sorted(target_ends(written).items()):
            if end > ends.get(number, 0):
                target = TopicPartition(self.key.target_topic, number)
                yield f"a receipt ends at offset {end} of {target}, but the position says {ends.get(number, 0)}"

    @property
    def _where(self) -> str:
        return f"{self.key.source} (entries in {POSITIONS}-{self.key.ledger_partition})"


def target_ends(entries: Iterable[Receipt | Handled]) -> dict[int, int]:
    """One past the highest offset of what these entries placed in each target partition."""
    readable = (entry for entry in entries if not isinstance(entry.placement, UnknownPlacement))
    return ends_of(part for entry in readable for part in entry.parts)


def _united(coverages: Iterable[Coverage]) -> Coverage:
    return Coverage.of(range_ for coverage in coverages for range_ in coverage)
