"""The state of one replication according to the ledger, as one value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from kafka_replication.ledger.account import NONE, Account
from kafka_replication.ledger.entries import Deleted, Gap, Handled, Ids, Position, Removed, Start, Verified
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.model.partitioning import KEEP


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

    def __getitem__(self, key: PartitionKey) -> Account:
        """The account of a known partition."""
        return self.of(key, self.positions[key].generation)

    def of(self, key: PartitionKey, generation: int) -> Account:
        """All entries of the partition that are of this generation."""
        verified, removed = self.verified.get(key), self.removed.get(key)
        return Account(
            key=key,
            position=self.position(key, generation)
            or Position(generation=generation, ids=Ids("", "", ""), start=0, next_offset=0),
            verified=verified if verified and verified.generation == generation else Verified(generation=generation),
            removed=removed if removed and removed.generation == generation else Removed(generation=generation),
            gaps=tuple(gap for gap in self.gaps.get(key, ()) if gap.generation == generation),
            handled=tuple(entry for entry in self.handled.get(key, ()) if entry.generation == generation),
        )


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
