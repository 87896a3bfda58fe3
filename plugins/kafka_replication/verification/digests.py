"""The digest kinds that this version can compute. A receipt names the kind of its digests.

A kind never changes, because stored receipts name it. Another way to compute a digest gets another name.

The digest of a sequence of records: equal digests mean the same records in the same order, byte for byte.

Each record is added field by field, after a packed header, so that no two different records add the same bytes. The
digest does not depend on how records are batched or compressed. It does not include offsets or the timestamp type.

The chunks of one partition: where their records lie on the target, and which source offsets belong to them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xxhash

from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.placement import UPGRADE, Part
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.offsets import Coverage, OffsetRange

if TYPE_CHECKING:
    from kafka_replication.wire.batch import Batch


DIGEST_KIND = "xxh3_128/1"
BATCH_DIGEST_KIND = "batches-xxh3_128/1"
Headers = Any  # a sequence of names and values (bytes or None), as the client gives them

_record = struct.Struct("<qiii").pack  # timestamp in ms, key length, value length, header count; -1 = null
# codec, last offset delta, record count, first timestamp in ms, bytes of records as they are stored
_batch = struct.Struct("<Biiqi").pack
_header = struct.Struct("<ii").pack  # name length in bytes, value length; -1 = null


def key_digest(key: bytes | None) -> str:
    """The digest by which logs and the store name a key; empty without a key."""
    return "" if key is None else xxhash.xxh3_128_hexdigest(key)


def record_digest(timestamp: int, key: bytes | None, value: bytes | None, headers: Headers | None) -> bytes:
    """The digest of one record, by which records are compared one by one."""
    fingerprint = Fingerprint()
    fingerprint.add(timestamp, key, value, headers)
    return fingerprint.hash.digest()


class Fingerprint:
    """The count, size and digest of the records that were added, in their order."""

    __slots__ = ("_update", "bytes", "count", "hash")

    def __init__(self) -> None:
        self.hash = xxhash.xxh3_128()
        self._update = self.hash.update
        self.count = 0
        self.bytes = 0

    def add(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers | None) -> None:
        """Add one record; ``timestamp`` in ms since the epoch, -1 where the record has none."""
        update = self._update
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        update(_record(timestamp, key_size, value_size, len(headers) if headers else 0))
        if key:
            update(key)
        if value:
            update(value)
        if headers:
            for name, content in headers:
                encoded = name.encode()
                update(_header(len(encoded), -1 if content is None else len(content)))
                update(encoded)
                if content:
                    update(content)
                self.bytes += len(encoded) + len(content or b"")
        self.count += 1
        self.bytes += (key_size if key_size > 0 else 0) + (value_size if value_size > 0 else 0)

    def hexdigest(self) -> str:
        return str(self.hash.hexdigest())


class BatchDigest:
    """The count and digest of stored record batches, in their order: their records, compressed as they are, and what
    decoding them needs. Equal digests mean equal records; the same records in other batches have another digest.

    A batch that is not as it was sent equals none that was. With ``message.timestamp.type=LogAppendTime`` its payload
    still has the producer's timestamps, but readers get the broker's.
    """

    __slots__ = ("count", "hash")

    def __init__(self) -> None:
        self.hash = xxhash.xxh3_128()
        self.count = 0

    def add_batch(self, batch: Batch) -> None:
        codec, size = batch.attributes & 0b111, len(batch.payload)
        if not batch.is_as_sent:
            self.hash.update(b"changed by the broker")
        self.hash.update(_batch(codec, batch.last_offset_delta, batch.count, batch.base_timestamp, size))
        self.hash.update(batch.payload)
        self.count += batch.count

    def hexdigest(self) -> str:
        return str(self.hash.hexdigest())


Digest = Fingerprint | BatchDigest
RECORD_DIGESTS: Mapping[str, type[Fingerprint]] = {DIGEST_KIND: Fingerprint}
DIGESTS: Mapping[str, Callable[[], Digest]] = {**RECORD_DIGESTS, BATCH_DIGEST_KIND: BatchDigest}


def digest_for(receipt: Receipt) -> Callable[[], Digest]:
    """Return the constructor of digests of the receipt's kind.

    Raises LedgerUnreadable for a kind that this version does not know: the copy may be correct, but this version cannot
    check it.
    """
    make = DIGESTS.get(receipt.digest_kind)
    if make is None:
        raise LedgerUnreadable(
            f"the receipt of source offsets {receipt.range} has the digest kind {receipt.digest_kind!r}, which this"
            f" version does not know (it knows {', '.join(sorted(DIGESTS))})",
            UPGRADE,
        )
    return make


def equals(digest: Digest, copy: Receipt | Part) -> bool:
    """True if the records that were added are those of this chunk, or of this part of one."""
    return (digest.count, digest.hexdigest()) == (copy.count, copy.digest)


def record_digest_for(receipt: Receipt) -> type[Fingerprint]:
    """The same where only records are at hand. Raises LedgerUnreadable, too, for a digest of stored batches."""
    digest_for(receipt)
    if (make := RECORD_DIGESTS.get(receipt.digest_kind)) is None:
        raise LedgerUnreadable(
            f"the receipt of source offsets {receipt.range} has a digest of whole batches, which single records do not"
            " have",
            "compare source and target (kafka-replication audit)",
        )
    return make


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
