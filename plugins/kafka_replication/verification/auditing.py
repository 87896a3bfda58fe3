"""The tasks of an audit and their results, as values. The side that decides makes them, a worker works on them.

Whoever adopts the copy of another tool has it compared by such a task, too.

The findings of an audit about a part of one partition, as a value that a worker returns.

Memory is bounded by `LISTED`, whatever the length of the part.

A random part of the chunks of a partition, which is the same part for the same seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any

import xxhash
from pydantic import PlainSerializer, PlainValidator

from kafka_replication.ledger.entries import FailedRecord, Proof, Receipt
from kafka_replication.ledger.offset_map import AdoptedPlaces
from kafka_replication.ledger.placement import Part
from kafka_replication.ledger.values import JsonRange
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.verification.digests import Unit, area_of, in_target_order
from kafka_replication.verification.matching import Difference, Kind
from kafka_replication.verification.verify import PartDigest

LISTED = 100_000  # differing records kept with their offsets for one partition; further ones are only counted


def _as_list(difference: Difference) -> list[Any]:
    kind, source, target, digest, partition = difference
    return [str(kind), source, target, digest.hex(), partition]


def _as_difference(found: Any) -> Difference:
    if isinstance(found, Difference):
        return found
    kind, source, target, digest, partition = found
    return Difference(Kind(kind), source, target, bytes.fromhex(digest), partition)


JsonDifference = Annotated[Difference, PlainSerializer(_as_list), PlainValidator(_as_difference)]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive records that differ in the same way."""

    kind: Kind
    source: OffsetRange | None
    target: OffsetRange | None
    count: int
    _: KW_ONLY
    partition: int | None = None  # of the target, where the records of one source partition lie in several

    def __str__(self) -> str:
        target = "target" if self.partition is None else f"target partition {self.partition}"
        places = [f"{side} {offsets}" for side, offsets in (("source", self.source), (target, self.target)) if offsets]
        return f"{self.kind} {', '.join(places)}: {self.count} record{'s' if self.count > 1 else ''}"


COUNTED = (
    "chunks",
    "source_records",
    "target_records",
    "by_content",
    "by_receipt",
    "not_at_source",
    "lost_in_delivery",
    "duplicates",
    "superseded",
)


@dataclass(slots=True, kw_only=True)
class Findings:
    """The audit adds to it step by step, and `add` joins the findings about several parts of a partition.

    ``by_content`` counts source offsets that were compared with the source records, ``by_receipt`` those that the
    source no longer has, and that were compared with the receipt. ``not_at_source`` counts records that match their
    receipt but are no longer on the source. ``impure`` is the first chunk that is as its receipt says, and of which the
    transform makes something else today.
    """

    chunks: int = 0
    source_records: int = 0
    target_records: int = 0
    by_content: int = 0
    by_receipt: int = 0
    not_at_source: int = 0
    lost_in_delivery: int = 0  # as verification counted them
    duplicates: int = 0  # further copies of our records, of attempts without transactions
    superseded: int = 0  # records that are not there because a newer one of their key is
    counts: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    unlisted: int = 0
    single: list[JsonDifference] = field(default_factory=list)
    whole: list[Stretch] = field(default_factory=list)
    impure: OffsetRange | None = None
    lacking: list[JsonRange] = field(default_factory=list)  # source offsets of chunks of which records are missing
    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        """Add what was found about another part of the same partition."""
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, count in other.counts.items():
            self.counts[kind] += count
        room = max(0, LISTED - len(self.single))
        self.single += other.single[:room]
        self.unlisted += other.unlisted + len(other.single[room:])
        self.whole += other.whole
        self.lacking += other.lacking
        self.impure = min((one for one in (self.impure, other.impure) if one), default=None)
        for note in other.notes:
            self.note(note)
        for error in other.errors:
            self.fail(error)

    def note(self, text: str) -> None:
        """Add a note, once."""
        self.notes += [] if text in self.notes else [text]

    def fail(self, text: str) -> None:
        """Add the reason why a part could not be audited, once."""
        self.errors += [] if text in self.errors else [text]

    def differ(self, differences: Iterable[Difference]) -> None:
        """Add records that differ."""
        for difference in differences:
            self.counts[difference.kind] += 1
            if len(self.single) < LISTED:
                self.single.append(difference)
            else:
                self.unlisted += 1

    def differ_from_source(self, receipt: Receipt, differences: Sequence[Difference], *, intact: bool) -> None:
        """Add the differences between a chunk and what the source has there today. If it is ``intact``, as its receipt
        says, records that the source removed since, as by compaction, are no error.
        """
        if intact:
            left = [difference for difference in differences if difference.kind is not Kind.EXTRA]
            self.not_at_source += len(differences) - len(left)
            if left and receipt.transform and self.impure is None:
                self.impure = receipt.range
            differences = left
        self.differ(differences)
        if any(difference.kind is Kind.MISSING for difference in differences):
            self.lacking.append(receipt.range)

    def differ_by_receipt(self, receipt: Receipt, count: int) -> None:
        """Add a chunk whose ``count`` target records do not match the receipt. The source can no longer show which
        ones.
        """
        missing = receipt.count - count
        kind = Kind.MISSING if missing > 0 else Kind.EXTRA if missing < 0 else Kind.ALTERED
        self.counts[kind] += abs(missing) or 1
        self.whole.append(Stretch(kind, receipt.range, area_of(receipt), abs(missing) or 1))
        if kind is Kind.MISSING:
            self.lacking.append(receipt.range)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a task, as its receipts say: offsets that are read, records and bytes that were copied of them."""

    offsets: int = 0
    records: int = 0
    bytes: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.offsets + other.offsets, self.records + other.records, self.bytes + other.bytes)

    @classmethod
    def of(cls, receipt: Receipt) -> Size:
        return cls(receipt.range.span, receipt.count, receipt.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadChunk:
    """A chunk whose records lie between those of others. ``found`` is what its target partitions have at its places."""

    receipt: Receipt
    by_content: bool
    found: dict[int, PartDigest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """Chunks that were written without transactions: they and their left-overs lie in ``stretches`` of the target.

    Those of ``by_receipt`` can no longer be made from the source, which still has ``readable``. The source offsets
    ``given_up`` were never copied.
    """

    by_content: tuple[Receipt, ...]
    by_receipt: tuple[Receipt, ...]
    stretches: Coverage
    readable: OffsetRange
    given_up: Coverage


@dataclass(frozen=True, slots=True)
class Claim:
    """The places of a part of a chunk in a target partition; with the kind of its digest, if that is wanted."""

    offsets: Coverage
    digest_kind: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCopy:
    """A copy that another tool made: the offsets of both sides, and the notes of that tool: its next source offset, and
    source and target offsets of single records. ``whole``: all of it is compared, not only its end. ``compacts``: the
    source may have compacted what was copied.
    """

    source: JsonRange
    target: JsonRange
    stored: int | None
    syncs: tuple[tuple[int, int], ...]
    whole: bool
    compacts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEnd:
    """The end of such a copy. ``next_offset`` is the source offset behind the last copied record, ``aborted`` the
    number of target records that the source has in aborted transactions. ``places`` say where records lie. The rest is
    as in `ledger.values.Adopted`.
    """

    next_offset: int
    target_from: int
    compared: int = 0
    doubles: int = 0
    missing: int = 0
    aborted: int = 0
    places: AdoptedPlaces | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A part of the audit of one source partition; or of one target partition, of which is read what chunks of many
    source partitions have there: the ``claims``. What lies between these in what is ``searched`` is extra.

    ``target_logs`` has what can be read of the target partitions.
    """

    id: int  # in its job; its result has the same
    partition: PartitionKey | TopicPartition
    size: Size = field(default_factory=Size)
    target_logs: dict[int, OffsetRange]
    units: tuple[Unit, ...] = ()
    spread: tuple[SpreadChunk, ...] = ()
    deliveries: Deliveries | None = None
    quarantined: tuple[FailedRecord, ...] = ()
    # Of records that were set aside the first source offset, and their place since they were retried.
    retried: tuple[tuple[int, Part], ...] = ()
    claims: tuple[Claim, ...] = ()  # all that reach into what is searched, and perhaps further ones
    searched: OffsetRange | None = None
    other_copy: OtherCopy | None = None

    @property
    def where(self) -> str:
        at = self.partition
        return str(at.source) if isinstance(at, PartitionKey) else f"{at} on the target"

    def failed(self, error: str) -> Audited:
        """The result of a part that was not read to its end."""
        return Audited(id=self.id, findings=Findings(errors=[error]))

    def died(self, cause: str, remedy: str) -> Audited:
        """The result if no worker brought one back."""
        return self.failed(f"{self.where}: a part was not audited: {cause}. Remedy: {remedy}")


@dataclass(slots=True, kw_only=True)
class Audited:
    """The findings about one part. ``errors`` in them say that it could not be read to its end. ``parts`` are the
    digests of the claims that are wanted, by their index. ``copy_end`` is that of another tool's copy, and ``remedy``
    belongs to the error if there is none.
    """

    id: int
    findings: Findings
    parts: dict[int, PartDigest] = field(default_factory=dict)
    copy_end: CopyEnd | None = None
    remedy: str = ""


MOST_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Sample:
    """At most so many ``chunks`` of each partition; the same ``seed`` gives the same ones.

    Raises ValueError for less than one.
    """

    chunks: int
    seed: int

    def __post_init__(self) -> None:
        if self.chunks < 1:
            raise ValueError(f"a sample of {self.chunks} chunks is none")

    def of(self, key: PartitionKey, receipts: Sequence[Receipt]) -> list[Receipt]:
        """The chunks of the sample, in source order. A chunk that is added later moves at most one other out.

        Chunks without transactions are judged by what lies between them, so these are neighbours on the target.
        """

        def draw(receipt: Receipt) -> int:
            return xxhash.xxh3_64_intdigest(f"{self.seed} {key} {receipt.generation} {receipt.range.from_}".encode())

        alone = sorted((one for one in receipts if one.proof is not Proof.BY_WINDOW), key=draw)[: self.chunks]
        row = in_target_order(one for one in receipts if one.proof is Proof.BY_WINDOW)
        first = min(range(len(row)), key=lambda index: draw(row[index]), default=0)
        first = max(0, min(first, len(row) - self.chunks))
        return sorted([*alone, *row[first : first + self.chunks]], key=lambda receipt: receipt.range)

    def __str__(self) -> str:
        return f"SAMPLE of at most {self.chunks} chunks of each partition, seed {self.seed}"


class LastChunk(Sample):
    """The last chunk of each partition."""

    def of(self, key: PartitionKey, receipts: Sequence[Receipt]) -> list[Receipt]:  # noqa: ARG002
        return list(receipts[-1:])


def drawn(chunks: int | None, seed: int | None) -> Sample | None:
    """The sample that a person asks for, with a new seed if they give none; None: everything. Raises BadInput."""
    if chunks is None:
        if seed is not None:
            raise BadInput(f"a seed ({seed}) without a sample", "say how many chunks of each partition to look at")
        return None
    return Sample(chunks, random.randrange(MOST_SEED) if seed is None else seed)
