"""The entries of the ledger: their values, and by the types of their fields their JSON. `codec` reads and writes them,
`record_keys` has their record keys.

The ledger has two compacted topics on the target: `POSITIONS` (all that a copier reads, approved gaps) and `RECEIPTS`.
Every entry has ``extra``: top-level fields of a newer version. A process that writes an entry again keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from kafka_replication.ledger.gap import GAP_KINDS as GAP_KINDS
from kafka_replication.ledger.gap import Gap as Gap
from kafka_replication.ledger.gap import Returned as Returned
from kafka_replication.ledger.offset_map import AdoptedPlaces, OffsetMap
from kafka_replication.ledger.placement import (
    JsonPlacement,
    KafkaPartitions,
    KafkaSegments,
    NewestByKey,
    Part,
    Placement,
    SpreadEnds,
    chooser_of,
    ends_of,
    newest_of,
    parts_of,
    proof_of,
)
from kafka_replication.ledger.values import Adopted as Adopted
from kafka_replication.ledger.values import FailedRecord as FailedRecord
from kafka_replication.ledger.values import Ids as Ids
from kafka_replication.ledger.values import JsonCoverage, JsonRange, LedgerEntry, Number
from kafka_replication.ledger.values import Place as Place
from kafka_replication.ledger.values import Proof as Proof
from kafka_replication.ledger.values import Seal as Seal
from kafka_replication.ledger.values import Transform as Transform
from kafka_replication.ledger.values import how as how
from kafka_replication.model.choices import EXACTLY_ONCE, TRANSACTIONAL, Delivery, Promise
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange

POSITIONS = "kafka-replication.positions"
RECEIPTS = "kafka-replication.receipts"
ONE_WRITER = "stop the other writer, or find out which older ledger was restored; a target belongs to one replication"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position(LedgerEntry):
    """The progress of one partition's copy.

    Written in the same transaction as the copied records, or when the partition is opened; without transactions, after
    the records were acknowledged. Then ``target_end`` is where our records end if none was lost or doubled.
    """

    KIND = "position"
    OPTIONAL = frozenset(
        {"adopted", "adopted_places", "delivery", "denied", "followed_by", "quarantined", "receipts_from", "sealed"}
    )
    OPTIONAL |= {"skipped", "spread", "target_epochs", "transform"}

    generation: Number
    ids: Ids
    start: Number
    next_offset: Number
    coverage: JsonCoverage = field(default_factory=Coverage)
    leader_epoch: int | None = None  # of the source offset before next_offset, if a record was read there
    target_end: Number = 0  # one past our highest target offset; another writer's records would follow it
    receipts_from: Number | None = None  # offset in the receipts topic; no receipt of this generation is below it
    delivery: Delivery = EXACTLY_ONCE  # the profile of who wrote this entry
    quarantined: Number = 0  # records of this generation that its receipts call so, also those handled since
    skipped: Number = 0
    transform: Transform | None = None  # of the chunk that was copied last
    spread: SpreadEnds | None = None  # where several target partitions have our records; target_end means nothing then
    # Leader epochs of the partitions of `ends`; -1 is not known. No part of what was copied: the session adds it.
    target_epochs: tuple[int, ...] | None = field(default=None, compare=False)
    adopted: Adopted | None = None  # the copy below ``start``, if another tool made it
    adopted_places: AdoptedPlaces | None = None  # where the records of that copy lie, as far as it was proved
    sealed: Seal | None = None  # nothing more is copied in this direction
    followed_by: str = ""  # the replication that goes on behind this seal, in the other direction
    denied: str = ""  # who denied producers to write to the source topic for a cut-over, and when; empty: nobody

    def __post_init__(self) -> None:
        for name in ("generation", "start", "next_offset", "target_end"):
            if not 0 <= getattr(self, name) <= MAX_OFFSET:
                raise ValueError(f"{name} {getattr(self, name)} cannot be")

    def adding(self, copied: OffsetRange, leader_epoch: int | None, target_end: int) -> Position:
        """This position after ``copied`` was added to the target. ``leader_epoch`` is that of its last offset, None if
        not known.
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
        """The leader epoch to resume at ``next_offset`` with.

        With the epoch of an older record the broker would report a truncation (KIP-320).
        """
        if next_offset == self.next_offset:
            return self.leader_epoch
        if next_offset > copied.until:  # the last offset is of a range copied earlier, whose epoch is not stored
            return None
        return leader_epoch

    @property
    def set_aside(self) -> int:
        """The number of records of this generation that were set aside."""
        return self.quarantined + self.skipped

    def counting(self, receipt: Receipt, times: int = 1) -> Position:
        """This position with the records that the chunk set aside, or without them (-1)."""
        return replace(
            self,
            quarantined=max(0, self.quarantined + times * receipt.quarantined),
            skipped=max(0, self.skipped + times * receipt.skipped),
        )

    def placed(self, placement: Placement) -> Position:
        """This position after a chunk was placed there. `adding` has moved ``target_end``."""
        if (by := chooser_of(placement)) is None:
            return self
        before, parts = self.spread or SpreadEnds.nothing(by), parts_of(placement, "a chunk")
        return replace(self, spread=before.with_(by, ends_of(parts)))

    def ends(self, partition: int) -> Mapping[int, int]:
        """One past our highest offset in each target partition. ``partition`` is the source's."""
        return dict(enumerate(self.spread.ends)) if self.spread else {partition: self.target_end}

    def left_of(self, wanted: OffsetRange) -> tuple[OffsetRange, ...]:
        """The parts of ``wanted`` that are not on the target yet."""
        return self.coverage.missing_from(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified(LedgerEntry):
    """The offsets that were read back and are equal, and the level at which they were verified.

    The verify step writes it, after fencing earlier runs. The last fields are about copies without transactions.
    """

    KIND = "verified"
    OPTIONAL = frozenset({"delivery", "duplicates", "judged_until", "lost_in_delivery", "receipts_from", "superseded"})

    generation: Number
    coverage: JsonCoverage = field(default_factory=Coverage)
    level: Annotated[str, Field(pattern="^(digest|count)$")] = "digest"  # the weakest level in the coverage
    run_id: str = ""
    time: str = ""  # RFC 3339 UTC
    receipts_from: Number | None = None  # offset in the receipts topic; all of this generation below it are verified
    delivery: Delivery = EXACTLY_ONCE  # the weakest profile in the coverage
    lost_in_delivery: Number = 0
    duplicates: Number = 0
    judged_until: Number | None = None  # target offset below which every record is explained
    superseded: Number = 0  # records that were read back where a newer one of their key was found


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(LedgerEntry):
    """The start of a partition of the first opening that could not be opened then.

    Written in the transaction that opens the others. Without meaning once the partition has a position.
    """

    KIND = "start"

    source_cluster: str
    source_topic: str  # its id
    start_from: str  # as the replication file said it: "earliest", "latest", or an RFC 3339 time
    offset: Number | None  # None: the partition did not answer, so it is resolved later, for ``time`` if it is "latest"
    time: str  # RFC 3339 UTC, when it was to be opened


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted(LedgerEntry):
    """A run has reported that the source topic of this id was deleted; later runs do not report it again."""

    KIND = "deleted"

    source_topic: str
    run_id: str
    time: str  # RFC 3339 UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed(LedgerEntry):
    """Copies that were on the target and are no longer there. Written when a run or an audit finds them gone, and when
    offsets are given back to be copied again.
    """

    KIND = "removed"
    OPTIONAL = frozenset({"lost_above_start", "taken_back", "taken_back_at", "target_starts"})

    generation: Number
    target_start: Number = 0  # the target's log start up to which ``coverage`` is known
    coverage: JsonCoverage = field(default_factory=Coverage)  # source offsets of these copies, but those given back
    # the part of ``coverage`` that the target's retention does not explain
    unexplained: JsonCoverage = field(default_factory=Coverage)
    recopy_allowed: JsonCoverage = field(default_factory=Coverage)  # source offsets of which only a second copy counts
    watermark_floor: Number = 0  # the watermark may stand here, although offsets below it were given back
    run_id: str = ""
    time: str = ""  # RFC 3339 UTC
    receipts_from: Number | None = None  # offset in the receipts topic; the copies of all receipts below it are gone
    target_starts: tuple[Number, ...] = ()  # for each target partition, where several have our records
    # more source offsets whose copies the target lost: these lay above its log start
    lost_above_start: JsonCoverage = field(default_factory=Coverage)
    taken_back: tuple[str, ...] = ()  # receipts that a run deleted to copy their offsets again, as text; the newest
    taken_back_at: str = ""  # when the last of them was, RFC 3339 UTC

    def start(self, partition: int) -> int:
        """The log start of this target partition up to which ``coverage`` is known."""
        if not self.target_starts:
            return self.target_start
        return self.target_starts[partition] if partition < len(self.target_starts) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(LedgerEntry):
    """The account of one chunk's transaction. The ranges of neighbouring receipts join without hole or overlap.

    ``count`` is the number of records that it wrote to the target, ``digest`` is their digest. ``copied`` is the number
    of source records that these come from: another one only where a transform makes several records of one. Records
    that it read and did not write are ``filtered`` (a filter or the transform dropped them), ``quarantined`` (written
    to another place) or ``skipped`` (left out); ``failures`` names these two. The other offsets had no visible record.
    ``throttled``: seconds for which
    quotas or a target that was not ready made it wait.

    A chunk without a transaction, and the first one after such chunks, has ``after``: the target offset behind the
    chunk before it, from which on all has to be explained. Verification adds ``lost_in_delivery`` and ``duplicates``.
    """

    KIND = "receipt"
    OPTIONAL = frozenset({"after", "delivery", "duplicates", "failures", "lost_in_delivery"}) | frozenset(
        {"offset_map", "promise", "sources", "superseded", "throttled"}
    )

    generation: Number
    range: JsonRange
    count: Number
    bytes: Number
    digest: str
    digest_kind: str
    engine: str
    placement: JsonPlacement
    ids: Ids
    run_id: str
    time: str  # RFC 3339 UTC
    filtered: Number = 0
    quarantined: Number = 0
    skipped: Number = 0
    transform: Transform | None = None
    throttled: Annotated[float, Field(ge=0)] = 0.0
    delivery: Delivery = EXACTLY_ONCE
    after: Number | None = None
    lost_in_delivery: Number = 0
    duplicates: Number = 0
    failures: tuple[FailedRecord, ...] = ()
    sources: Number | None = None  # None: as many as ``count``
    promise: Promise = TRANSACTIONAL  # of the target. Without it readers may have seen the chunk before this receipt
    superseded: Number = 0  # of ``count``, the records that readers do not find: a newer one of their key is there
    offset_map: OffsetMap | None = None  # of a chunk with holes; `planning.group_places` reads it

    def __post_init__(self) -> None:
        if self.sources == self.count:
            object.__setattr__(self, "sources", None)

    @property
    def copied(self) -> int:
        """The number of source records that are on the target, each as one record or several."""
        return self.count if self.sources is None else self.sources

    @property
    def parts(self) -> tuple[Part, ...]:
        """The places of its records on a Kafka target. Raises LedgerUnreadable for another kind of placement."""
        return parts_of(self.placement, f"the receipt of source offsets {self.range}")

    @property
    def newest(self) -> NewestByKey:
        """The place of a chunk with `Proof.BY_KEY`. Raises LedgerUnreadable for another one."""
        return newest_of(self.placement, f"the receipt of source offsets {self.range}")

    @property
    def proof(self) -> Proof:
        return proof_of(self.placement) if self.after is None else Proof.BY_WINDOW

    @property
    def interleaved(self) -> bool:
        """True if records of others may lie between its records."""
        return isinstance(self.placement, KafkaPartitions)


# retried: copied to the target later. discarded: given up by a person.
HANDLED_STATES = ("retried", "discarded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled(LedgerEntry):
    """Records that were set aside, and that a person has decided about: in one transaction, by one command.

    ``quarantined`` and ``skipped`` are source offsets.
    ``count`` and ``digest`` are those of retried records, which are at ``placement`` in source order. Never removed.
    Who gives offsets back, to be copied a second time, adds them to ``given_back``: what becomes of the second copies
    is decided anew, by an entry with another ``number`` if it has the same first offset.
    """

    KIND = "handled"
    OPTIONAL = frozenset({"given_back", "number"})

    generation: Number
    state: str  # one of HANDLED_STATES
    quarantined: JsonCoverage
    skipped: JsonCoverage
    ids: Ids
    by: str
    reason: str
    run_id: str
    time: str  # RFC 3339 UTC
    count: Number = 0
    digest: str = ""
    digest_kind: str = ""
    placement: JsonPlacement = field(default_factory=KafkaSegments)
    given_back: JsonCoverage = field(default_factory=Coverage)
    number: Number = 0  # of the entries of one generation with one first offset

    def __post_init__(self) -> None:
        if self.state not in HANDLED_STATES or not self.offsets:
            raise ValueError(f"not handled records: {self.state!r} {self.offsets}")

    @property
    def offsets(self) -> Coverage:
        return self.quarantined.union(self.skipped)

    @property
    def decided(self) -> Coverage:
        """The offsets about which it still decides. Whoever applies a decision asks this."""
        return self.offsets.subtract(self.given_back)

    @property
    def proof(self) -> Proof:
        """The way to prove that the retried records are on the target."""
        return proof_of(self.placement)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The places of retried records on a Kafka target. Raises LedgerUnreadable for another kind of placement."""
        return parts_of(self.placement, f"the entry of handled records {self.offsets}")


Entry = Position | Verified | Gap | Start | Deleted | Removed | Receipt | Handled
