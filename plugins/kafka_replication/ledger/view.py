"""What the ledger says about one replication, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kafka_replication.ledger.entries import Gap, Position, Verified
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage


@dataclass(frozen=True, slots=True)
class LedgerView:
    """What the ledger says about one replication."""

    positions: Mapping[PartitionKey, Position] = field(default_factory=dict)
    verified: Mapping[PartitionKey, Verified] = field(default_factory=dict)
    gaps: Mapping[PartitionKey, tuple[Gap, ...]] = field(default_factory=dict)  # of every generation, in order

    def position(self, key: PartitionKey, generation: int) -> Position | None:
        """The position, if it is of this generation: one of another says nothing about its records."""
        found = self.positions.get(key)
        return found if found is not None and found.generation == generation else None

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
        """The offset in the receipts topic below which no receipt of the key's generation is unverified; None where
        that is not known, as in what earlier versions wrote.
        """
        position = self.positions[key]
        verified = self._verified(key, position.generation)
        known = (position.receipts_from, verified.receipts_from if verified else None)
        return max((offset for offset in known if offset is not None), default=None)

    def read_back(self, key: PartitionKey, generation: int) -> Coverage:
        """What of this generation was read back and found equal."""
        entry = self._verified(key, generation)
        return entry.coverage if entry else Coverage()

    def _verified(self, key: PartitionKey, generation: int) -> Verified | None:
        found = self.verified.get(key)
        return found if found is not None and found.generation == generation else None

    def lost(self, key: PartitionKey, generation: int) -> Coverage:
        """What of this generation was never copied and given up by approval."""
        return Coverage.of(
            each.range for each in self.gaps.get(key, ()) if each.generation == generation and not each.copied
        )

    def unproven(self, key: PartitionKey, generation: int) -> Coverage:
        """What of this generation was copied, and its verification given up by approval."""
        return Coverage.of(
            each.range for each in self.gaps.get(key, ()) if each.generation == generation and each.copied
        )

    def verified_or_waived(self, key: PartitionKey, generation: int) -> Coverage:
        """What needs no further look: read back and found equal, or given up. The watermark may pass it."""
        return self.read_back(key, generation).union(self.lost(key, generation)).union(self.unproven(key, generation))

    def verified_end(self, key: PartitionKey) -> int:
        """Where the watermark of a known partition may stand: the end of its contiguous verified coverage."""
        position = self.positions[key]
        return self.verified_or_waived(key, position.generation).contiguous_end(position.start)
