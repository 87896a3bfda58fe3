"""The size of what a batch holds: keys, values and headers of its records, without compression.

Packs records of one or several batches into a new batch: https://kafka.apache.org/documentation/#record

Key, value, headers and times stay as they are, byte for byte. Written anew are the length of a record, its offset
within the batch, and its time, which counts from the batch's first time. With
``message.timestamp.type=LogAppendTime`` all records of a batch have its latest time, whatever they say themselves.

Names of headers, byte for byte, in the records of a batch: https://kafka.apache.org/documentation/#record
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kafka_replication.wire.batch import AS_SENT, CODEC, DAMAGED, Batch, Codec, Malformed, packed, unpacked, unpacker

# Of so many batches of a codec one is unpacked: an odd number, so that batches that take turns all have theirs. The
# others are taken to be compressed as well as these were, of which one before counts less than the one after it.
EACH, BEFORE = 17, 0.9


class Contents:
    """Estimates the sizes of batches that follow each other in one partition.

    The size without compression is exact for a batch without compression, and for one of `EACH` others of a codec. The
    frames around the fields of a record are subtracted; their lengths are taken from the mean of the batch, which
    is right to about one byte a record.
    """

    def __init__(self) -> None:
        self._codecs: dict[int, _Seen] = {}

    def of(self, batch: Batch) -> int:
        """The bytes of keys, values and headers. Raises ImportError."""
        stored = len(batch.payload)
        if not batch.count:
            return 0
        if (codec := batch.attributes & CODEC) != Codec.NONE and stored:
            stored = self._codecs.setdefault(codec, _Seen()).unpacked(codec, batch.payload)
        return max(0, stored - frames(batch, stored))


@dataclass(slots=True)
class _Seen:
    """The batches of one codec so far, and what those that were unpacked had in bytes, without compression and with."""

    count: int = 0
    without: float = 1.0
    stored: float = 1.0

    def unpacked(self, codec: int, payload: memoryview) -> int:
        self.count += 1
        if self.count % EACH == 1:
            with suppress(ValueError):  # damaged: an estimate does not decide what becomes of it
                size, before = len(unpacked(codec, payload)), BEFORE if self.count > 1 else 0.0
                self.without, self.stored = before * self.without + size, before * self.stored + len(payload)
                return size
        return round(len(payload) * self.without / self.stored)


def frames(batch: Batch, size: int) -> int:
    """The bytes of a batch of ``size`` bytes, without compression, that are neither key, value nor header: for each
    record its length, those of key and value, the number of headers, attributes, and what it adds to time and offset
    (https://kafka.apache.org/documentation/#record).
    """
    time = abs(batch.max_timestamp - batch.base_timestamp) // 2
    record = size // max(1, batch.count)
    return batch.count * (3 + 2 * _length(record) + _length(time) + _length(batch.last_offset_delta // 2))


def _length(number: int) -> int:
    """The bytes of a number, zigzag and seven bits a byte."""
    return (max(1, 2 * number).bit_length() + 6) // 7


def _encoded(value: int) -> bytes:
    """A number: zigzag, seven bits a byte, the lowest first."""
    left, out = value << 1 ^ value >> 63, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


_MANY = 1 << 13
_ENCODED = tuple(map(_encoded, range(_MANY)))  # most numbers in batches are among these
_TIMES = tuple(b"\0" + each for each in _ENCODED)  # no attributes, and a time
# How the only record of a batch begins: its length, no attributes, and the batch's time and offset.
_ALONE = tuple(each + b"\0\0\0" for each in _ENCODED)
_FAR = 1 << 63  # ms; a time has 64 bits


def _time(time: int) -> bytes:
    if not -_FAR <= time < _FAR:
        raise ValueError("its times are too far from that of the first batch")
    return _encoded(time)


class Repacking:
    """Packs the records of batches into one, as a producer would send it: without holes, and with the times that
    readers see. The batches are `UNDERSTOOD`, and of one codec, which stays, or without compression: a producer leaves
    out that of a batch which it would not make smaller.
    """

    __slots__ = ("_base", "_kept", "_start", "codec", "offsets", "size", "times", "until")

    def __init__(self, first: Batch) -> None:
        """``first`` is the first of them; add it, too."""
        self._start, self.until = first, first.base_offset  # one past the source offsets of what was added
        self._base = first.base_timestamp if first.given_time is None else first.given_time
        self._kept, self.times = bytearray(), list[int]()  # a time for each record, in ms after the first one's
        self.codec = first.attributes & CODEC
        self.offsets = list[int]()  # of the records; not of those that were added ``whole``
        self.size = 0  # bytes of the records without compression, as they came

    def add(self, batch: Batch, first: int, until: int) -> None:
        """Add the records of a batch at the offsets ``first <= offset < until``. Raises Malformed, also if it comes
        before the last one; ImportError.
        """
        try:
            if batch.base_offset < self.until:
                raise ValueError(f"it comes behind one that ends at {self.until}")
            self._add(batch, unpacked(batch.attributes & CODEC, batch.payload), (first, until))
        except (ValueError, IndexError) as e:
            raise Malformed(f"the batch at offset {batch.base_offset}: {e}") from e

    def add_next(self, batches: Iterator[Batch], largest: int, records: int, most: int) -> Batch | None:
        """Add, as `add_whole` does, batches without holes that follow the last one without a hole, have at most
        ``largest`` stored bytes, and at most so many ``records``. Returns the first that is not added; None if all are.
        Raises ImportError, and what ``batches`` raise.

        Many producers send one record a batch, so nothing of this module is called for such a batch.
        """
        kept, times, base, codec, size = self._kept, self.times, self._base, self.codec, self.size
        unpack, new, until = unpacker(codec), len(times), self.until
        try:
            for batch in batches:
                offset, _, attributes, _, time, _, _, _, count, payload = batch
                if offset != until or len(payload) > largest or count > records:
                    return batch
                data = None
                if count == 1 and attributes & CODEC == codec:
                    try:
                        data = unpack(payload)
                    except DAMAGED:
                        return batch
                    length, time = len(data), time - base
                    behind = 4 if length < 65 else 5
                    if (
                        length != 65  # no record has this length with its own number: 63 needs one byte, 64 two
                        and length < _MANY - 20
                        and -_FAR <= time < _FAR
                        and new < _MANY
                        and len(kept) + length <= most
                        and data.startswith(_ALONE[length + 3 - behind])
                    ):
                        times.append(time)
                        head = (_TIMES[time] if 0 <= time < _MANY else b"\0" + _encoded(time)) + _ENCODED[new]
                        new += 1
                        kept += _ENCODED[len(head) + length - behind] + head
                        kept += data[behind:]
                        size += length
                        until += 1
                        continue
                self.until, self.size = until, size
                if not self.add_whole(batch, most, data):
                    return batch
                new, until, size, codec = len(times), self.until, self.size, self.codec
                unpack = unpacker(codec)
            return None
        finally:
            self.until, self.size = until, size

    def add_whole(self, batch: Batch, most: int, data: bytes | None = None) -> bool:
        """Add all records of a batch that is as a producer sent it; ``data`` are they, if they are unpacked already.
        False, and nothing is added, if it is malformed, is of another codec, or would make more than ``most`` bytes of
        records. Raises ImportError.
        """
        codec = batch.attributes & CODEC
        if codec != self.codec and codec and self.codec:
            return False
        already, kept = len(self.times), len(self._kept)
        try:
            data = unpacker(codec)(batch.payload) if data is None else data
            if kept + len(data) > most or batch.base_offset < self.until:
                return False
            self._add(batch, data, None)
        except (*DAMAGED, ValueError, IndexError):
            del self.times[already:], self._kept[kept:]
            return False
        return True

    def _add(self, batch: Batch, data: bytes, wanted: tuple[int, int] | None) -> None:
        """Add the records that are ``wanted``, all if it is None. Raises ValueError or IndexError if the batch is
        malformed; then a part of its records may be added.

        Most of the work is done here, so nothing is called for a record of the usual kind.
        """
        start, _, attributes, last, later, _, _, _, count, _ = batch
        kept, times, before, given, later = self._kept, self.times, -1, batch.given_time, later - self._base
        position, end_of_all, new = 0, len(data), len(times)
        for number in range(count):
            if (length := data[position]) < 0x80:
                position += 1
            elif (more := data[position + 1]) < 0x80:
                length, position = length & 0x7F | more << 7, position + 2
            else:
                length, position = number_at(data, position)
            end = position + (length >> 1)
            # No producer sets attributes, and with some of them a client takes another time.
            if length & 1 or end > end_of_all or data[position]:
                raise ValueError(f"record {number} is cut, or has attributes")
            if (time := data[position + 1]) < 0x80 and (its := data[position + 2]) < 0x80:
                position += 3
            else:
                time, position = number_at(data, position + 1)
                its, position = number_at(data, position)
            # One behind the other, each within the batch: where there is no hole, this leaves one number for each.
            if its & 1 or not before < (its := its >> 1) <= last or position > end:
                raise ValueError(f"record {number} does not say where in the batch it is")
            before = its
            if wanted is None or self._is_wanted(start + its, wanted):
                time = (time >> 1 ^ -(time & 1)) + later if given is None else given - self._base
                times.append(time)
                head = (_TIMES[time] if 0 <= time < _MANY else b"\0" + _time(time)) + (
                    _ENCODED[new] if new < _MANY else _encoded(new)
                )
                new += 1
                length = len(head) + end - position
                kept += (_ENCODED[length] if length < _MANY else _encoded(length)) + head
                kept += data[position:end]
            position = end
        if position != end_of_all:
            raise ValueError("there is more behind its last record")
        self.until, self.codec = start + last + 1, self.codec or attributes & CODEC
        self.size += end_of_all

    def _is_wanted(self, offset: int, wanted: tuple[int, int]) -> bool:
        if wanted[0] <= offset < wanted[1]:
            self.offsets.append(offset)
            return True
        return False

    def packed(self, first: int) -> Batch:
        """The batch; ``first`` is the first offset that was wanted. It has no records if none was added."""
        base, times, start = self._base, self.times, self._start
        latest = base + max(times, default=0)
        if times and (latest >= _FAR or base + min(times) < -_FAR):  # clients add them modulo 2**64
            latest = max((base + time + _FAR) % (2 * _FAR) - _FAR for time in times)
        payload = packed(self.codec, self._kept)
        return start._replace(
            attributes=start.attributes & AS_SENT & ~CODEC | self.codec,
            base_offset=max(first, start.base_offset),
            last_offset_delta=len(times) - 1,
            base_timestamp=base,
            max_timestamp=latest,
            count=len(times),
            payload=memoryview(payload),
        )


def repacked(batches: Sequence[Batch], first: int, until: int) -> tuple[Batch, list[int]]:
    """One batch with the records that ``batches``, in their order, have at the source offsets ``first <= offset <
    until``, as `Repacking` packs them, and their offsets. It has no records if they have none there.

    Raises Malformed, also if they are not in their order. Raises ImportError.
    """
    packing = Repacking(batches[0])
    for batch in batches:
        packing.add(batch, first, until)
    return packing.packed(first), packing.offsets


def number_at(data: bytes, position: int) -> tuple[int, int]:
    """The number at this place, before its sign is decoded, and the place behind it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


NUL = b"\0"


def nul_in_names(data: bytes, count: int) -> dict[int, bool]:
    """The records of a batch by their offsets in it, each with True if it has a header whose name has a NUL. ``data``
    are the ``count`` records without compression.

    Raises ValueError and IndexError for malformed records.
    """
    has_nul, position = dict[int, bool](), 0
    for _ in range(count):
        length, position = number_at(data, position)
        end = position + (length >> 1)
        if length & 1 or end > len(data):
            raise ValueError("a record is cut")
        _, position = number_at(data, position + 1)  # behind the attributes: the time
        offset, position = number_at(data, position)
        position = _behind(data, _behind(data, position))  # key and value
        headers, position = number_at(data, position)
        has = False
        for _ in range(headers >> 1):
            name = position
            position = _behind(data, name)
            length, first = number_at(data, name)
            has = has or (not length & 1 and NUL in data[first : first + (length >> 1)])
            position = _behind(data, position)
        has_nul[offset >> 1] = has
        if position != end:
            raise ValueError("a record does not end where it says")
    if position != len(data):
        raise ValueError("there is more behind its last record")
    return has_nul


def _behind(data: bytes, position: int) -> int:
    """The place behind the field that begins here."""
    length, position = number_at(data, position)
    return position if length & 1 else position + (length >> 1)
