"""What the ledger on the target holds, and its fixed, versioned JSON form.

Two compacted topics: `POSITIONS`, all that a copier reads and the approved gaps, and `RECEIPTS`, the audit trail.
Formats never change within a version; a newer version than this code knows is refused by name. A field this version
does not know is refused too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.keys import PartitionKey, dump
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition

POSITIONS = "kafka-replication.positions"
RECEIPTS = "kafka-replication.receipts"
FORMAT = 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ids:
    """What the entries are about: names can be re-used, these cannot."""

    source_cluster: str
    source_topic: str
    target_topic: str


@dataclass(frozen=True, slots=True)
class Position:
    """How far one partition was copied.

    Written in the transaction of the records it speaks of, or when it is opened.
    """

    generation: int
    ids: Ids
    start: int
    next_offset: int
    coverage: Coverage = field(default_factory=Coverage)
    leader_epoch: int | None = None  # of the source offset right before the next one, where a record was read there
    target_end: int = 0  # one past the highest target offset of ours; where a foreign writer would begin

    def after(self, copied: OffsetRange, leader_epoch: int | None, target_end: int) -> Position:
        """This position once ``copied`` is on the target as well; ``leader_epoch`` is that of its last offset, where
        known.
        """
        coverage = self.coverage.add(copied)
        next_offset = coverage.contiguous_end(self.next_offset)
        return Position(
            self.generation,
            self.ids,
            self.start,
            next_offset,
            coverage,
            self._epoch(copied, leader_epoch, next_offset),
            max(self.target_end, target_end),
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


@dataclass(frozen=True, slots=True)
class Verified:
    """Which offsets were read back and found equal, and how thoroughly.

    Written by the verify step, which fences its predecessors.
    """

    generation: int
    coverage: Coverage
    level: str  # "digest" or "count", the weakest of all that is covered
    run_id: str
    time: str  # RFC 3339 UTC


# Removed at the source before it was copied; before the log start of a partition that appeared later; copied, and
# removed from the target before it was read back.
GAP_KINDS = ("retention", "late", "unverifiable")


@dataclass(frozen=True, slots=True)
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

    def __post_init__(self) -> None:
        if self.kind not in GAP_KINDS or not self.range.span:
            raise ValueError(f"not a gap: {self.kind!r} {self.range}")

    @property
    def copied(self) -> bool:
        """It was copied; given up is only the proof."""
        return self.kind == "unverifiable"


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive records of ours on one target partition: ``first`` and ``last`` are inclusive offsets."""

    partition: int
    first: int
    last: int
    count: int
    digest: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one chunk's transaction did. Its range tiles with its neighbours'; ``count`` 0 has no segments."""

    generation: int
    range: OffsetRange
    count: int
    bytes: int
    digest: str
    digest_kind: str
    engine: str
    segments: tuple[Segment, ...]
    ids: Ids
    run_id: str
    time: str


def position_key(key: PartitionKey) -> bytes:
    return key.entry("position")


def verified_key(key: PartitionKey) -> bytes:
    return key.entry("verified")


def receipt_key(key: PartitionKey, receipt: Receipt) -> bytes:
    return key.entry("receipt", receipt.generation, receipt.range.from_)


def gap_key(key: PartitionKey, gap: Gap) -> bytes:
    return key.entry("gap", gap.generation, gap.range.from_)


def encode(entry: Position | Verified | Gap | Receipt) -> bytes:
    """The entry as versioned JSON: sorted keys, no blanks, UTF-8."""
    value = {name: _plain(content) for name, content in ((name, getattr(entry, name)) for name in entry.__slots__)}
    return dump({"format": FORMAT, "type": type(entry).__name__.lower(), **value})


def _plain(content: Any) -> Any:
    match content:
        case Coverage():
            return content.encode()
        case OffsetRange():
            return [content.from_, content.until]
        case Ids():
            return asdict(content)
        case tuple():
            return [asdict(each) for each in content]
        case _:
            return content


def decode_key(data: bytes | None) -> tuple[str, PartitionKey, tuple[int, ...]]:
    """(kind, key, further numbers). Raises LedgerUnreadable for what was not written by this product."""
    try:
        parts = json.loads(data or b"")
        if [type(part) for part in parts] != [str, str, str, int, str] + [int] * (len(parts) - 5):
            raise ValueError(f"not a ledger key: {parts!r}")
        kind, replication, topic, partition, target, *more = parts
        return kind, PartitionKey(replication, TopicPartition(topic, partition), target), tuple(more)
    except (ValueError, TypeError) as e:
        raise LedgerUnreadable(f"a ledger entry has the key {data!r}, which is not ours", _FOREIGN) from e


def decode_position(data: bytes) -> Position:
    """Raises LedgerUnreadable."""
    value = _load(data, "position")
    return _build(
        data,
        lambda: Position(
            **{
                **_exact(Position, value),
                "ids": Ids(**_exact(Ids, value["ids"])),
                "coverage": Coverage.decode(value["coverage"]),
            }
        ),
    )


def decode_verified(data: bytes) -> Verified:
    """Raises LedgerUnreadable."""
    value = _load(data, "verified")
    return _build(data, lambda: Verified(**{**_exact(Verified, value), "coverage": Coverage.decode(value["coverage"])}))


def decode_gap(data: bytes) -> Gap:
    """Raises LedgerUnreadable."""
    value = _load(data, "gap")
    return _build(
        data,
        lambda: Gap(
            **{
                **_exact(Gap, value),
                "range": _range(value["range"]),
                "ids": Ids(**_exact(Ids, value["ids"])),
            }
        ),
    )


def decode_receipt(data: bytes) -> Receipt:
    """Raises LedgerUnreadable."""
    value = _load(data, "receipt")
    return _build(
        data,
        lambda: Receipt(
            **{
                **_exact(Receipt, value),
                "range": _range(value["range"]),
                "ids": Ids(**_exact(Ids, value["ids"])),
                "segments": tuple(Segment(**_exact(Segment, each)) for each in value["segments"]),
            }
        ),
    )


_FOREIGN = "only this product may write the ledger topics: find the writer, then delete or repair the entry"


def _load(data: bytes, kind: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
        found, format_ = value.pop("type"), value.pop("format")
    except (ValueError, AttributeError, KeyError, TypeError) as e:
        raise LedgerUnreadable(f"a ledger entry is not readable: {data[:200]!r}", _FOREIGN) from e
    if type(format_) is not int or format_ != FORMAT:
        raise LedgerUnreadable(
            f"a ledger {kind} has format {format_!r}, this version knows {FORMAT}", "upgrade this installation"
        )
    if found != kind:
        raise LedgerUnreadable(f"a ledger entry is a {found!r} where a {kind} belongs", _FOREIGN)
    return dict(value)


def _build(data: bytes, make: Callable[[], T]) -> T:
    try:
        return make()
    except (ValueError, TypeError, KeyError) as e:
        raise LedgerUnreadable(f"a ledger entry is malformed ({e}): {data[:200]!r}", _FOREIGN) from e


_PLAIN: dict[Any, Callable[[Any], bool]] = {  # by the annotation's text
    "int": lambda value: type(value) is int and value >= 0,
    "int | None": lambda value: value is None or type(value) is int,
    "str": lambda value: type(value) is str,
}


def _exact(kind: type, value: Any) -> dict[str, Any]:
    """``value``, which must hold the fields of ``kind`` and no other: a default would read a broken entry as another
    position.
    """
    expected = {each.name: each.type for each in fields(kind)}
    if not isinstance(value, dict) or value.keys() != expected.keys():
        raise ValueError(f"its fields are not {sorted(expected)}")
    wrong = [name for name, type_ in expected.items() if type_ in _PLAIN and not _PLAIN[type_](value[name])]
    if wrong:
        raise ValueError(f"{wrong[0]} is {value[wrong[0]]!r}")
    return value


def _range(pair: Any) -> OffsetRange:
    if not isinstance(pair, list) or [type(each) for each in pair] != [int, int]:
        raise ValueError(f"not an offset range: {pair!r}")
    return OffsetRange(*pair)
