"""The report of an audit: the findings about each partition, for people and for programs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, Final, Literal

from kafka_replication.documents import GapRow, Pair, SpanRow, place
from kafka_replication.ledger.entries import FailedRecord, Handled, Receipt, Transform, how
from kafka_replication.ledger.placement import Part
from kafka_replication.model.choices import TRANSACTIONAL, Promise
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey
from kafka_replication.reporting.table import Columns, table
from kafka_replication.verification.auditing import Findings, Sample, Stretch
from kafka_replication.verification.matching import Difference, Kind, join_moved

AuditOutcome = Literal["clean", "differs", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRow:
    """Consecutive records that differ in one way: ``missing``, ``extra``, ``moved`` or ``altered``.

    ``source`` and ``target`` are ``[from, until]`` pairs; null where that side does not have them.
    """

    kind: str
    source: Pair | None
    target: Pair | None
    count: int

    @classmethod
    def of(cls, stretch: Stretch) -> DifferenceRow:
        fields: Any = {name: getattr(stretch, name) for name in ("kind", "source", "target", "count")}
        if stretch.partition is None:
            return cls(**fields)
        return PlacedDifferenceRow(**fields, target_partition=stretch.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedDifferenceRow(DifferenceRow):
    """The same where the copies of one source partition lie in several: they are in ``target_partition``."""

    target_partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow(SpanRow):
    """The audit of one partition. ``by_content`` counts source offsets that were compared with the source's records,
    ``by_receipt`` those that the source no longer has, and that were compared with the receipt.

    ``offsets`` counts the copied offsets of the range: the audit has looked at ``by_content`` + ``by_receipt`` of them.

    ``differences`` lists stretches; further records that differ are counted as ``unlisted``. ``errors`` say why the
    audit of the partition could not be finished.
    """

    generation: int
    outcome: AuditOutcome
    chunks: int
    offsets: int
    source_records: int
    target_records: int
    by_content: int
    by_receipt: int
    not_at_source: int
    lost_in_delivery: int
    duplicates: int
    superseded: int
    quarantined: int
    skipped: int
    retried: int
    verified_by: str
    missing: int
    extra: int
    moved: int
    altered: int
    differences: list[PlacedDifferenceRow | DifferenceRow]
    unlisted: int
    lost: tuple[GapRow, ...]
    notes: list[str]
    errors: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditDocument:
    """``audit``, its ``--report`` file, and what Airflow's task pushes, which lists fewer differences.

    ``sample`` is null if everything was looked at. ``promise``: as in ``run``.
    """

    format: int = 1
    replication: str
    promise: Promise
    run_id: str
    time: str
    outcome: AuditOutcome
    sample: Sample | None
    partitions: list[AuditRow]


@dataclass(slots=True, kw_only=True)
class PartitionAudit(Findings):
    """The findings about one partition as a whole. ``offsets`` is how many offsets of the range were copied: the audit
    has looked at ``by_content`` + ``by_receipt`` of them.
    """

    key: PartitionKey
    generation: int
    range: OffsetRange
    offsets: int = 0
    quarantined: int = 0
    skipped: int = 0
    retried: int = 0  # set aside first, and copied later
    lost: tuple[GapRow, ...] = ()
    verified_by: str = "none"  # how the copies were verified when they were made: digest, count or none
    _unknown_kinds: set[str] = field(default_factory=set)
    _others: set[Transform | None] = field(default_factory=set)

    def not_auditable(self, receipt: Receipt, error: ReplicationError) -> None:
        """Add an error for an unknown digest kind. Each kind is reported once, for the first chunk that has it."""
        if receipt.digest_kind not in self._unknown_kinds:
            self._unknown_kinds.add(receipt.digest_kind)
            self.errors.append(str(error))

    def recomputes(self, receipt: Receipt, today: Transform | None) -> bool:
        """True if today's filter and transform are those that the chunk was copied with. Otherwise a note says so, once
        for each.
        """
        if receipt.transform == today:
            return True
        if receipt.transform not in self._others:
            self._others.add(receipt.transform)
            self.notes.append(
                f"chunks that were copied {how(receipt.transform)}, the first one {receipt.range}, were compared with"
                f" their receipts only: today's copies are made {how(today)}"
            )
        return False

    def set_aside(self, failed: FailedRecord, *, is_retried: bool) -> None:
        """Count a record that a chunk set aside."""
        if is_retried:
            self.retried += 1
        elif failed.place is None:
            self.skipped += 1
        else:
            self.quarantined += 1

    def retried_and_gone(self, entry: Handled, part: Part, count: int) -> None:
        """Add records that were retried, and that the target no longer has."""
        self.counts[Kind.MISSING] += count
        first, last = entry.offsets.ranges[0], entry.offsets.ranges[-1]
        where = OffsetRange(part.first, part.until)
        self.whole.append(Stretch(Kind.MISSING, OffsetRange(first.from_, last.until), where, count))
        self.notes.append(f"of the retried records {entry.offsets}, {count} are no longer on the target at {where}")

    def given_back(self, offsets: Coverage) -> None:
        """Add offsets that were given back to be copied again, and were not copied yet."""
        for range_ in offsets:
            self.counts[Kind.MISSING] += range_.span
            self.whole.append(Stretch(Kind.MISSING, range_, None, range_.span))

    def finish(self) -> None:
        """Count a record that is missing at one offset and extra at another as moved, whatever the distance.

        Called once all parts were added.
        """
        if self.impure is not None:
            self.note(
                f"chunk {self.impure} is as its receipt says, but the transform makes other records of the source"
                " today: it is not pure, or a module changed that it uses"
            )
        before, self.single = len(self.single), join_moved(self.single)
        moved = before - len(self.single)
        self.counts[Kind.MISSING] -= moved
        self.counts[Kind.EXTRA] -= moved
        self.counts[Kind.MOVED] += moved

    @property
    def outcome(self) -> AuditOutcome:
        """``clean``, ``differs`` or ``failed`` (the audit could not be finished)."""
        return "failed" if self.errors else "differs" if any(self.counts.values()) else "clean"

    @property
    def stretches(self) -> list[Stretch]:
        """All listed differences; consecutive ones of one kind are joined."""
        stretches = list(self.whole)
        order = sorted(
            self.single,
            key=lambda difference: (
                difference.kind,
                difference.partition or 0,
                difference.source is None,
                difference.source or 0,
                difference.target or 0,
            ),
        )
        for _, group in itertools.groupby(enumerate(order), key=_run):
            first, *more = (difference for _, difference in group)
            last = more[-1] if more else first
            stretches.append(
                Stretch(
                    first.kind,
                    _span(first.source, last.source),
                    _span(first.target, last.target),
                    len(more) + 1,
                    partition=first.partition,
                )
            )
        return stretches

    def row(self, limit: int | None) -> AuditRow:
        """The row of the document. It lists at most ``limit`` stretches."""
        stretches = self.stretches
        listed = stretches[:limit]
        return AuditRow(
            **place(self.key, self.range),
            **{name: getattr(self, name) for name in _SAME},
            **dict[str, Any]((str(kind), count) for kind, count in self.counts.items()),
            differences=[DifferenceRow.of(stretch) for stretch in listed],
            unlisted=self.unlisted + sum(stretch.count for stretch in stretches[len(listed) :]),
        )


_SAME = {field.name for field in fields(AuditRow)} - {field.name for field in fields(SpanRow)}
_SAME -= {*map(str, Kind), "differences", "unlisted"}


def _run(numbered: tuple[int, Difference]) -> tuple[Kind, int | None, int | None, int | None]:
    """A key that is equal for consecutive differences: both offsets grow by one with the number."""
    number, difference = numbered
    return (
        difference.kind,
        difference.partition,
        None if difference.source is None else difference.source - number,
        None if difference.target is None else difference.target - number,
    )


def _span(first: int | None, last: int | None) -> OffsetRange | None:
    return None if first is None or last is None else OffsetRange(first, last + 1)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """``outcome`` is ``clean``, ``differs`` or ``failed``."""

    replication: str
    run_id: str
    time: str
    partitions: tuple[PartitionAudit, ...]
    _: KW_ONLY
    sample: Sample | None = None
    promise: Promise = TRANSACTIONAL  # of the target

    @property
    def outcome(self) -> AuditOutcome:
        outcomes = {partition.outcome for partition in self.partitions}
        return "failed" if "failed" in outcomes else "differs" if "differs" in outcomes else "clean"

    @property
    def verdict(self) -> str:
        """The outcome in words, which do not say more than was looked at."""
        return self.outcome if self.sample is None else f"{self.outcome}, as far as the sample goes"

    def document(self, limit: int | None = None) -> AuditDocument:
        """``limit`` bounds the stretches listed for each partition."""
        return AuditDocument(
            replication=self.replication,
            promise=self.promise,
            run_id=self.run_id,
            time=self.time,
            outcome=self.outcome,
            sample=self.sample,
            partitions=[partition.row(limit) for partition in self.partitions],
        )

    def text(self) -> str:
        """The report for people: a line for each partition, then its differences, at most ten stretches for each."""
        lines = (line for partition in self.partitions for line in _lines(partition))
        return "\n".join([table(self.partitions, _COLUMNS), *self._seen(), *lines])

    def _seen(self) -> Iterator[str]:
        """The share of the copies that a sample has looked at."""
        if self.sample is None:
            return
        all_ = sum(partition.offsets for partition in self.partitions)
        seen = sum(partition.by_content + partition.by_receipt for partition in self.partitions)
        share = f"{100 * seen / all_:.1f}%" if all_ else "all"
        yield f"{self.sample}: {seen:,} of {all_:,} copied offsets were looked at ({share})."
        yield "Of the others this audit says nothing, and it did not search for records of other writers."


_COLUMNS: Final[Columns[PartitionAudit]] = {
    "partition": lambda row: row.key.source,
    "target topic": lambda row: row.key.target_topic,
    "range": lambda row: row.range,
    "chunks": lambda row: f"{row.chunks:,}",
    "source": lambda row: f"{row.source_records:,}",
    "target": lambda row: f"{row.target_records:,}",
    "offsets": lambda row: f"{row.offsets:,}",
    "by content": lambda row: f"{row.by_content:,}",
    "by receipt": lambda row: f"{row.by_receipt:,}",
    "failed": lambda row: f"{row.quarantined + row.skipped:,}",
    "retried": lambda row: f"{row.retried:,}",
    "missing": lambda row: f"{row.counts[Kind.MISSING]:,}",
    "extra": lambda row: f"{row.counts[Kind.EXTRA]:,}",
    "moved": lambda row: f"{row.counts[Kind.MOVED]:,}",
    "altered": lambda row: f"{row.counts[Kind.ALTERED]:,}",
    "verified by": lambda row: row.verified_by,
    "outcome": lambda row: row.outcome,
}


def _lines(partition: PartitionAudit) -> Iterator[str]:
    stretches = partition.stretches
    for stretch in stretches[:10]:
        yield f"DIFFERS {partition.key.source} {stretch}"
    if len(stretches) > 10 or partition.unlisted:
        yield f"  {partition.key.source} has more differences: --report FILE writes all of them"
    if partition.lost_in_delivery or partition.duplicates:
        counts = (
            f"{partition.lost_in_delivery} records lost in delivery, {partition.duplicates} duplicates on the target"
        )
        yield f"{partition.key.source}: {counts}"
    if partition.superseded:
        yield f"{partition.key.source}: {partition.superseded} records are superseded by a newer one of their key"
    yield from (f"FAILED {partition.key.source} {error}" for error in partition.errors)
    yield from (f"{partition.key.source} {note}" for note in partition.notes)
    yield from map(str, partition.lost)
