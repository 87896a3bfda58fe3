"""What the ledger on the target holds, as values. `codec` has their JSON, `record_keys` the keys they lie under.

Two compacted topics: `POSITIONS`, all that a copier reads and the approved gaps, and `RECEIPTS`, the audit trail.

Every entry has ``extra``: top-level fields that a newer version wrote and this one does not know. Whoever writes an
entry anew writes them back.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.offsets import Coverage, OffsetRange

POSITIONS = "kafka-replication.positions"
RECEIPTS = "kafka-replication.receipts"
UPGRADE = "upgrade this installation: a newer version wrote it"


@dataclass(frozen=True, slots=True)
class Ids:
    """What the entries are about: names can be re-used, these cannot."""

    source_cluster: str
    source_topic: str
    target_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far one partition was copied.

    Written in the transaction of the records it speaks of, or when the partition is opened.
    """

    generation: int
    ids: Ids
    start: int
    next_offset: int
    coverage: Coverage = field(default_factory=Coverage)
    leader_epoch: int | None = None  # of the source offset right before the next one, where a record was read there
    target_end: int = 0  # one past the highest target offset of ours; where a foreign writer would begin
    receipts_from: int | None = None  # offset in the receipts topic below which there is none of this generation
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def after(self, copied: OffsetRange, leader_epoch: int | None, target_end: int) -> Position:
        """This position once ``copied`` is on the target as well; ``leader_epoch`` is that of its last offset, where
        known.
        """
        coverage = self.coverage.add(copied)
        next_offset = coverage.contiguous_end(self.next_offset)
        return replace(
            self,
            next_offset=next_offset,
            coverage=coverage,
            leader_epoch=self._epoch(copied, leader_epoch, next_offset),
            target_end=max(self.target_end, target_end),
        )

    def _epoch(self, copied: OffsetRange, leader_epoch: int | None, next_offset: int) -> int | None:
        """The leader epoch to resume ``next_offset`` with.

        An older record's would make the broker report a truncation (KIP-320).
        """
        if next_offset == self.next_offset:
            return self.leader_epoch
        if next_offset > copied.until:  # a range copied earlier follows, whose epoch is not kept
            return None
        return leader_epoch

    def left_of(self, wanted: OffsetRange) -> tuple[OffsetRange, ...]:
        """What of ``wanted`` is not yet on the target."""
        return self.coverage.missing_from(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Which offsets were read back and found equal, and how thoroughly.

    Written by the verify step, which fences its predecessors.
    """

    generation: int
    coverage: Coverage
    level: str  # "digest" or "count", the weakest of all that is covered
    run_id: str
    time: str  # RFC 3339 UTC
    receipts_from: int | None = None  # offset in the receipts topic below which all of this generation are verified
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)


# Removed at the source before it was copied; before the log start of a partition that appeared later; copied, and
# removed from the target before it was read back.
GAP_KINDS = ("retention", "late", "unverifiable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Source offsets that somebody gave up.

    Written in the transaction of the position that crosses them, never removed.
    """

    generation: int
    kind: str  # one of GAP_KINDS
    range: OffsetRange
    reason: str
    approved_by: str
    ids: Ids
    run_id: str
    time: str  # RFC 3339 UTC
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.kind not in GAP_KINDS or not self.range.span:
            raise ValueError(f"not a gap: {self.kind!r} {self.range}")

    @property
    def copied(self) -> bool:
        """It was copied; given up is only the proof."""
        return self.kind == "unverifiable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive records of ours on one target partition: ``first`` and ``last`` are inclusive offsets."""

    partition: int
    first: int
    last: int
    count: int
    digest: str


@dataclass(frozen=True, slots=True)
class KafkaSegments:
    """Where a chunk lies on a Kafka target: in source order; empty where the chunk put no record there."""

    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True)
class UnknownPlacement:
    """Where a chunk lies, in a ``kind`` of place that this version does not know. ``content`` is kept as it was."""

    kind: str
    content: Mapping[str, Any] = field(hash=False)


Placement = KafkaSegments | UnknownPlacement


@dataclass(frozen=True, slots=True)
class Transform:
    """What changed the records on their way: its name, and the hash of what it does."""

    name: str
    hash: str


@dataclass(frozen=True, slots=True, order=True)
class MappedOffset:
    """Where one source record lies on a Kafka target."""

    source_offset: int
    target_partition: int
    target_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What one chunk's transaction did. Its range tiles with its neighbours'.

    ``count`` is the number of records it put on the target, ``digest`` theirs. Records it read and did not put there
    are ``filtered`` (the transform dropped them), ``quarantined`` (set aside elsewhere) or ``skipped`` (passed over by
    approval); what remains of the range was not visible. ``offset_map`` is sparse: some of the chunk's records.
    """

    generation: int
    range: OffsetRange
    count: int
    bytes: int
    digest: str
    digest_kind: str
    engine: str
    placement: Placement
    ids: Ids
    run_id: str
    time: str  # RFC 3339 UTC
    filtered: int = 0
    quarantined: int = 0
    skipped: int = 0
    transform: Transform | None = None
    offset_map: tuple[MappedOffset, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        offsets = [mapped.source_offset for mapped in self.offset_map]
        if any(after <= before for before, after in itertools.pairwise(offsets)):
            raise ValueError("the offset map is not in rising order")
        if any(offset not in self.range for offset in offsets):
            raise ValueError(f"the offset map leaves the range {self.range}")

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Where its records lie on a Kafka target. Raises LedgerUnreadable for another kind of placement."""
        if isinstance(self.placement, UnknownPlacement):
            raise LedgerUnreadable(
                f"the receipt of source offsets {self.range} has the placement kind {self.placement.kind!r}, which this"
                " version does not know",
                UPGRADE,
            )
        return self.placement.segments


Entry = Position | Verified | Gap | Receipt
