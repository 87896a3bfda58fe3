"""The state of one replication according to the ledger, as one value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final

from kafka_replication.ledger.entries import Deleted, Gap, Handled, Position, Removed, Start, Verified
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.model.partitioning import KEEP

NONE: Final = "none"  # the level of what was not verified
ASIDE: Final = ("quarantined", "skipped")


def weakest(levels: Iterable[str]) -> str:
    """The weakest of these levels, without those of partitions of which nothing was verified; `NONE` if none was."""
    found = set(levels)
    return next((level for level in ("count", "digest") if level in found), NONE)


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """Another replication that copies to a target topic, and the id that the topic had when it was opened."""

    replication: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class LedgerView:
    """The positions, verified coverage and approved gaps of one replication, and what its runs noted."""

    positions: Mapping[PartitionKey, Position] = field(default_factory=dict)
    verified: Mapping[PartitionKey, Verified] = field(default_factory=dict)
    gaps: Mapping[PartitionKey, tuple[Gap, ...]] = field(default_factory=dict)  # of every generation, in order
    _: KW_ONLY
    starts: Mapping[PartitionKey, Start] = field(default_factory=dict)  # of the first opening, where it failed
    deleted: Mapping[PartitionKey, Deleted] = field(default_factory=dict)  # reported deletions of source topics
    removed: Mapping[PartitionKey, Removed] = field(default_factory=dict)  # copies that the target no longer has
    handled: Mapping[PartitionKey, tuple[Handled, ...]] = field(default_factory=dict)  # of every generation
    # other replications, by target topic
    owners: Mapping[str, tuple[Owner, ...]] = field(default_factory=dict, compare=False)

    @property
    def begun(self) -> bool:
        """True if the replication's first opening was done. What appears later starts at its beginning."""
        return bool(self.positions or self.starts)

    def position(self, key: PartitionKey, generation: int) -> Position | None:
        """The position if it is of this generation, else None: another generation has other records."""
        position = self.positions.get(key)
        return position if position is not None and position.generation == generation else None

    def verified_with(
        self, key: PartitionKey, generation: int, more: Coverage, *, level: str, run_id: str, time: str
    ) -> Verified:
        """The entry to write once ``more`` of this generation was read back, at ``level``.

        Its level is ``count`` if any part was only counted.
        """
        entry = self._verified(key, generation)
        if entry is None:
            return Verified(generation=generation, coverage=more, level=level, run_id=run_id, time=time)
        weakest = "count" if entry.level == "count" else level
        return replace(entry, coverage=entry.coverage.union(more), level=weakest, run_id=run_id, time=time)

    def receipts_from(self, key: PartitionKey) -> int | None:
        """An offset in the receipts topic: all receipts of the key's generation below it are verified. None if that is
        not known, because an earlier version wrote the entries.
        """
        position = self.positions[key]
        verified = self._verified(key, position.generation)
        recorded = (position.receipts_from, verified.receipts_from if verified else None)
        return max((offset for offset in recorded if offset is not None), default=None)

    def read_back(self, key: PartitionKey, generation: int) -> Coverage:
        """The offsets of this generation that were read back and are equal."""
        entry = self._verified(key, generation)
        return entry.coverage if entry else Coverage()

    def judged_until(self, key: PartitionKey, generation: int) -> int | None:
        """The target offset below which every record was explained; None if the copies do not need it."""
        entry = self._verified(key, generation)
        return entry.judged_until if entry else None

    def _verified(self, key: PartitionKey, generation: int) -> Verified | None:
        entry = self.verified.get(key)
        return entry if entry is not None and entry.generation == generation else None

    def level(self, key: PartitionKey, generation: int) -> str:
        """The level at which the copies of this generation were verified: ``digest``, ``count``, or ``none`` if nothing
        was.
        """
        entry = self._verified(key, generation)
        return entry.level if entry and entry.coverage else NONE

    def delivered(self, key: PartitionKey, generation: int) -> Verified | None:
        """The entry about what is verified of this generation: its profile, and what was lost or doubled; None if
        nothing is.
        """
        return self._verified(key, generation)

    def given_up(self, key: PartitionKey, generation: int) -> Coverage:
        """The offsets of this generation that were never copied, and were given up by approval."""
        return Coverage.of(
            gap.range for gap in self.gaps.get(key, ()) if gap.generation == generation and not gap.copied
        )

    def unproven(self, key: PartitionKey, generation: int) -> Coverage:
        """The offsets of this generation that were copied, but whose verification was given up by approval."""
        given_up = (gap.range for gap in self.gaps.get(key, ()) if gap.generation == generation and gap.copied)
        return Coverage.of(given_up).subtract(self.given_back(key, generation))

    def removal(self, key: PartitionKey, generation: int) -> Removed | None:
        """The entry about copies of this generation that the target no longer has."""
        entry = self.removed.get(key)
        return entry if entry is not None and entry.generation == generation else None

    def given_back(self, key: PartitionKey, generation: int) -> Coverage:
        """The offsets that were given back to be copied again, whether they were or not."""
        entry = self.removal(key, generation)
        return entry.again if entry else Coverage()

    def gone(self, key: PartitionKey) -> Coverage:
        """The offsets of a known partition that were on the target once and are not there now."""
        position = self.positions[key]
        entry = self.removal(key, position.generation)
        return entry.coverage.union(entry.middle).union(self._not_again(position, entry)) if entry else Coverage()

    def missed(self, key: PartitionKey) -> Coverage:
        """The part of `gone` that neither the target's retention explains nor an approval accepts.

        What was not read back before it was gone is missed in any case: nothing says that it was there.
        """
        position = self.positions[key]
        entry = self.removal(key, position.generation)
        if entry is None:
            return Coverage()
        accepted = self.unproven(key, position.generation)
        missed = entry.unexplained.union(entry.middle).subtract(accepted).union(self.gone_unverified(key))
        return missed.union(self._not_again(position, entry))

    def gone_unverified(self, key: PartitionKey) -> Coverage:
        """The offsets of a known partition that were gone from the target before they were read back."""
        entry = self.removal(key, self.positions[key].generation)
        return entry.coverage.union(entry.middle).intersection(self.pending(key)) if entry else Coverage()

    @staticmethod
    def _not_again(position: Position, entry: Removed) -> Coverage:
        return entry.again.subtract(position.coverage)

    def verified_or_waived(self, key: PartitionKey, generation: int) -> Coverage:
        """The offsets that the watermark may pass: read back and equal, or given up by approval."""
        return (
            self.read_back(key, generation).union(self.given_up(key, generation)).union(self.unproven(key, generation))
        )

    def handled_in(self, key: PartitionKey, generation: int, state: str | None = None) -> tuple[Handled, ...]:
        """The decisions about records of this generation that were set aside, in order; None: every decision."""
        return tuple(
            entry
            for entry in self.handled.get(key, ())
            if entry.generation == generation and state in (None, entry.state)
        )

    def decided(self, key: PartitionKey, generation: int, state: str) -> Coverage:
        """The offsets that are set aside now, and decided about so; see `Handled`."""
        return _united(entry.decided for entry in self.handled_in(key, generation, state))

    def retried(self, key: PartitionKey, generation: int) -> Coverage:
        """The offsets that were set aside, and copied later."""
        retried = self.handled_in(key, generation, "retried")
        return _united(entry.offsets for entry in retried)

    def retried_at(self, key: PartitionKey, generation: int) -> Coverage:
        """The offsets of the key's own target partition where records lie that were set aside, and copied later."""
        parts = (part for entry in self.handled_in(key, generation, "retried") for part in entry.parts)
        return _united(part.offsets for part in parts if part.partition == key.target.partition)

    def set_aside(self, key: PartitionKey) -> tuple[int, int]:
        """The numbers of records of a known partition that are quarantined and skipped now, without those that were
        retried.
        """
        position = self.positions[key]
        retried = self.handled_in(key, position.generation, "retried")
        quarantined, skipped = (_united(getattr(entry, name) for entry in retried).span for name in ASIDE)
        return max(0, position.quarantined - quarantined), max(0, position.skipped - skipped)

    def undecided(self, key: PartitionKey, of: Sequence[str] = ASIDE) -> int:
        """The number of records of a known partition that are set aside ``of`` these ways and wait for a decision."""
        position = self.positions[key]
        entries = self.handled_in(key, position.generation)
        decided = _united(getattr(entry, name).subtract(entry.given_back) for entry in entries for name in of)
        aside: int = sum(getattr(position, name) for name in of)
        return max(0, aside - decided.span)

    def pending(self, key: PartitionKey) -> Coverage:
        """The offsets of a known partition that are on the target, but neither verified nor waived by an approval."""
        position = self.positions[key]
        return position.coverage.subtract(self.verified_or_waived(key, position.generation))

    def verified_end(self, key: PartitionKey) -> int:
        """The offset at which the watermark of a known partition may stand: the end of its contiguous verified
        coverage.
        """
        position = self.positions[key]
        entry = self.removal(key, position.generation)
        start = max(position.start, entry.passed if entry else 0)
        return self.verified_or_waived(key, position.generation).contiguous_end(start)


def _united(coverages: Iterable[Coverage]) -> Coverage:
    return Coverage.of(range_ for coverage in coverages for range_ in coverage)


def copied_until(position: Position) -> int:
    """The next source offset to copy. It is below ``next_offset`` if the target lost the copies before that."""
    next_ = position.next_offset
    holes = position.left_of(OffsetRange(min(position.start, next_), next_))
    return holes[-1].from_ if holes and holes[-1].until == next_ else next_


def lost_before(position: Position, wanted: OffsetRange, known: Coverage) -> Coverage:
    """The offsets that the target lost and that a copy of ``wanted`` would leave behind newer ones. ``known``: it was
    planned to do so.
    """
    if wanted.until <= position.next_offset:
        return Coverage()
    lost = OffsetRange(copied_until(position), position.next_offset)
    return Coverage.of([lost]).subtract(known).subtract(Coverage.of([wanted]))


def partitioning_of(key: PartitionKey, position: Position) -> str | None:
    """The partitioning of the last records before this position; None if nothing was written yet."""
    if not position.coverage or not any(position.ends(key.source.partition).values()):
        return None
    return position.spread.by.name if position.spread else KEEP
