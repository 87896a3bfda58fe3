"""The chunks of one partition: where their records lie on the target, and which source offsets belong to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.placement import Part
from kafka_replication.model.offsets import Coverage, OffsetRange


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of an audit: a chunk with its receipt, or (without a receipt) target offsets of no receipt."""

    target: OffsetRange | None  # None: the chunk wrote no record to the target
    receipt: Receipt | None
    by_content: bool = False  # the source still has all of the chunk; else it is compared with its receipt


def units(
    chosen: Iterable[Receipt],
    others: Iterable[Receipt],
    window: OffsetRange | None,
    retried: Iterable[OffsetRange] = (),
    without: OffsetRange | None = None,
) -> list[Unit]:
    """The chunks to audit, and the offsets of ``window`` that belong to no receipt, in the target's order. ``retried``
    are target offsets of records that were copied after their chunk. Those ``without`` are audited in another way.
    """
    placed: list[tuple[int, int, Unit]] = []
    after = 0
    for receipt in sorted(chosen, key=lambda receipt: receipt.range):
        area = area_of(receipt)
        after = area.from_ if area else after
        placed.append((after, 1, Unit(area, receipt)))
    if window is not None:
        receipts = (*(unit.receipt for _, _, unit in placed if unit.receipt), *others)
        ours = claimed(receipts).add(*retried, *([without] if without else []))
        placed += [(left.from_, 0, Unit(left, None)) for left in Coverage.of([window]).subtract(ours)]
    return [unit for _, _, unit in sorted(placed, key=lambda entry: entry[:2])]


def claimed(receipts: Iterable[Receipt]) -> Coverage:
    """The target offsets of these receipts, which are all about one target partition."""
    return Coverage.of(range_ for receipt in receipts for part in receipt.parts for range_ in part.offsets)


def area_of(receipt: Receipt) -> OffsetRange | None:
    """The target offsets from a chunk's first record to its last; None without records, or in several partitions."""
    if len({part.partition for part in receipt.parts}) != 1:
        return None
    return OffsetRange(min(part.first for part in receipt.parts), max(part.until for part in receipt.parts))


def places(parts: Iterable[Part]) -> Iterator[int]:
    """The target offsets of these parts, one after the other."""
    return (place for part in parts for range_ in part.offsets for place in range(range_.from_, range_.until))


def in_target_order(receipts: Iterable[Receipt]) -> list[Receipt]:
    """The receipts in the order of their chunks on the target; first those that have none of one partition there."""
    return sorted(receipts, key=lambda receipt: (area.from_ if (area := area_of(receipt)) else -1, receipt.range))


def chunk_of(offset: int, receipts: Sequence[Receipt]) -> OffsetRange:
    """The range of the receipt to which a source offset belongs; the first one if it belongs to none."""
    own = (receipt.range for receipt in receipts if offset in receipt.range)
    return next(own, receipts[0].range)


def set_aside(receipt: Receipt) -> frozenset[int]:
    """The source offsets of the records that the chunk quarantined or skipped."""
    return frozenset(failed.offset for failed in receipt.failures)
