"""The findings of an audit about a part of one partition, as a value that a worker returns.

Memory is bounded by `LISTED`, whatever the length of the part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.fields import JsonRange
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.verification.chunks import area_of
from kafka_replication.verification.matching import Difference, Kind

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
