"""What an audit found: differences partition by partition, for people and for programs.

Memory is bounded by `LISTED`, whatever the range's length.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka_replication.ledger.entries import Receipt
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.planning.gaps import ApprovedGap
from kafka_replication.reporting.table import table
from kafka_replication.verification.audit import Difference, Kind, area_of

REPORT_FORMAT = 1
LISTED = 100_000  # differing records remembered by offset for one partition; further ones are only counted


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive records that differ in the same way."""

    kind: Kind
    source: OffsetRange | None
    target: OffsetRange | None
    count: int

    def __str__(self) -> str:
        places = [f"{side} {each}" for side, each in (("source", self.source), ("target", self.target)) if each]
        return f"{self.kind} {', '.join(places)}: {self.count} record{'s' if self.count > 1 else ''}"

    def as_json(self) -> dict[str, Any]:
        pair = {
            side: [each.from_, each.until] if each else None
            for side, each in (("source", self.source), ("target", self.target))
        }
        return {"kind": str(self.kind), **pair, "count": self.count}


@dataclass(slots=True, kw_only=True)
class PartitionAudit:
    """What the audit of one partition found, growing as it goes.

    ``by_content`` and ``by_receipt`` are source offsets: compared with the source's records, or, where the source no
    longer has them, with what the receipt says. ``not_at_source`` counts records whose receipt vouches for them and
    that the source has lost.
    """

    key: PartitionKey
    generation: int
    range: OffsetRange
    chunks: int = 0
    source_records: int = 0
    target_records: int = 0
    by_content: int = 0
    by_receipt: int = 0
    not_at_source: int = 0
    lost: tuple[ApprovedGap, ...] = ()
    counts: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    unlisted: int = 0
    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _single: list[Difference] = field(default_factory=list)
    _whole: list[Stretch] = field(default_factory=list)
    _unknown_kinds: set[str] = field(default_factory=set)

    def not_auditable(self, receipt: Receipt, error: ReplicationError) -> None:
        """The digest kind of this chunk is unknown. One error for each such kind, about the first chunk that has it."""
        if receipt.digest_kind not in self._unknown_kinds:
            self._unknown_kinds.add(receipt.digest_kind)
            self.errors.append(str(error))

    def differ(self, found: Iterable[Difference]) -> None:
        for each in found:
            self.counts[each.kind] += 1
            if len(self._single) < LISTED:
                self._single.append(each)
            else:
                self.unlisted += 1

    def differ_by_receipt(self, receipt: Receipt, count: int) -> None:
        """The target has ``count`` records that are not as the receipt says, and the source can no longer tell
        which.
        """
        missing = receipt.count - count
        kind = Kind.MISSING if missing > 0 else Kind.EXTRA if missing < 0 else Kind.ALTERED
        self.counts[kind] += abs(missing) or 1
        self._whole.append(Stretch(kind, receipt.range, area_of(receipt), abs(missing) or 1))

    def finish(self) -> None:
        """A record that is missing at one place and extra at another was moved, over whatever distance."""
        missing: dict[bytes, deque[int]] = defaultdict(deque)
        for index, each in enumerate(self._single):
            if each.kind is Kind.MISSING:
                missing[each.digest].append(index)
        gone = set[int]()
        for index, each in enumerate(self._single):
            if each.kind is Kind.EXTRA and missing.get(each.digest):
                twin = missing[each.digest].popleft()
                gone.add(twin)
                self._single[index] = Difference(Kind.MOVED, self._single[twin].source, each.target)
                self.counts[Kind.MISSING] -= 1
                self.counts[Kind.EXTRA] -= 1
                self.counts[Kind.MOVED] += 1
        self._single = [each for index, each in enumerate(self._single) if index not in gone]

    @property
    def outcome(self) -> str:
        """``clean``, ``differs`` or ``failed`` (it could not be audited to the end)."""
        return "failed" if self.errors else "differs" if any(self.counts.values()) else "clean"

    @property
    def stretches(self) -> list[Stretch]:
        """All listed differences, coalesced."""
        found = list(self._whole)
        order = sorted(
            self._single, key=lambda each: (each.kind, each.source is None, each.source or 0, each.target or 0)
        )
        for _, group in itertools.groupby(enumerate(order), key=_run):
            first, *more = (each for _, each in group)
            last = more[-1] if more else first
            found.append(
                Stretch(first.kind, _span(first.source, last.source), _span(first.target, last.target), len(more) + 1)
            )
        return found

    def as_json(self, limit: int | None = None) -> dict[str, Any]:
        """The stable interface of the report file; with ``limit`` it lists no more stretches than that."""
        stretches = self.stretches
        listed = stretches[:limit]
        unlisted = self.unlisted + sum(each.count for each in stretches[len(listed) :])
        return {
            "topic": self.key.source.topic,
            "partition": self.key.source.partition,
            "target_topic": self.key.target_topic,
            "generation": self.generation,
            "from": self.range.from_,
            "until": self.range.until,
            "outcome": self.outcome,
            "chunks": self.chunks,
            "source_records": self.source_records,
            "target_records": self.target_records,
            "by_content": self.by_content,
            "by_receipt": self.by_receipt,
            "not_at_source": self.not_at_source,
            **{str(kind): count for kind, count in self.counts.items()},
            "differences": [each.as_json() for each in listed],
            "unlisted": unlisted,
            "lost": [each.as_json() for each in self.lost],
            "notes": self.notes,
            "errors": self.errors,
        }


def _run(numbered: tuple[int, Difference]) -> tuple[Kind, int | None, int | None]:
    """Equal for neighbours: both offsets rise by one with the number."""
    number, each = numbered
    return (
        each.kind,
        None if each.source is None else each.source - number,
        None if each.target is None else each.target - number,
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

    @property
    def outcome(self) -> str:
        found = {each.outcome for each in self.partitions}
        return "failed" if "failed" in found else "differs" if "differs" in found else "clean"

    def as_json(self, limit: int | None = None) -> dict[str, Any]:
        """``limit`` bounds the stretches listed for each partition."""
        return {
            "format": REPORT_FORMAT,
            "replication": self.replication,
            "run_id": self.run_id,
            "time": self.time,
            "outcome": self.outcome,
            "partitions": [each.as_json(limit) for each in self.partitions],
        }

    def text(self) -> str:
        """As a person reads it: a line a partition, then what differs, at most ten stretches each."""
        head = (
            "partition",
            "range",
            "chunks",
            "source",
            "target",
            "by content",
            "by receipt",
            *map(str, Kind),
            "outcome",
        )
        rows = [
            (
                str(each.key.source),
                str(each.range),
                str(each.chunks),
                str(each.source_records),
                str(each.target_records),
                str(each.by_content),
                str(each.by_receipt),
                *map(str, each.counts.values()),
                each.outcome,
            )
            for each in self.partitions
        ]
        return "\n".join([table(head, rows), *(line for each in self.partitions for line in _lines(each))])


def _lines(each: PartitionAudit) -> Iterator[str]:
    stretches = each.stretches
    for stretch in stretches[:10]:
        yield f"DIFFERS {each.key.source} {stretch}"
    if len(stretches) > 10 or each.unlisted:
        yield f"  and more of {each.key.source}: --report writes all of them to a file"
    yield from (f"FAILED {each.key.source} {error}" for error in each.errors)
    yield from (f"{each.key.source} {note}" for note in each.notes)
    yield from map(str, each.lost)
