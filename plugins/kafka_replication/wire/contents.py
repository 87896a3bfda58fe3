"""The size of what a batch holds: keys, values and headers of its records, without compression.

Compresses and decompresses the records of a batch: https://kafka.apache.org/documentation/#recordbatch, codecs 0 to
4.

Only code that cuts a batch needs it, so pyarrow is imported at its first use. Raises ImportError without it.

Packs records of one or several batches into a new batch: https://kafka.apache.org/documentation/#record

Key, value, headers and times stay as they are, byte for byte. Written anew are the length of a record, its offset
within the batch, and its time, which counts from the batch's first time. With
``message.timestamp.type=LogAppendTime`` all records of a batch have its latest time, whatever they say themselves.

Names of headers, byte for byte, in the records of a batch: https://kafka.apache.org/documentation/#record
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import xxhash

from kafka_replication.wire.batch import AS_SENT, CODEC, Batch, Malformed


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_GZIP_LEVEL = 1  # three times as fast as 6, the default of clients, for an eighth more bytes
# snappy-java's frames, which all clients read: this, two versions, and blocks. The length of a block precedes it.
_SNAPPY_JAVA = b"\x82SNAPPY\x00"
_SNAPPY_VERSIONS = struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK = 32 << 10
# A frame of LZ4: Java's client takes only blocks that do not depend on each other. Version 1, blocks of 64 KiB.
_LZ4_MAGIC, _LZ4_FLAGS, _LZ4_BLOCK, _LZ4_END = b"\x04\x22\x4d\x18", b"\x60\x40", 64 << 10, b"\0\0\0\0"
_LZ4_AS_IT_IS = 1 << 31


def unpacked(codec: int, data: memoryview) -> bytes:
    """The records without compression. Raises ValueError for damaged data, or a codec that is not known."""
    try:
        match codec:
            case Codec.NONE:
                return bytes(data)
            case Codec.GZIP:
                return gzip.decompress(data)
            case Codec.SNAPPY:
                return b"".join(map(_snappy, _snappy_blocks(bytes(data))))
            case Codec.LZ4 | Codec.ZSTD:
                import pyarrow

                with pyarrow.input_stream(
                    pyarrow.py_buffer(data), compression="lz4" if codec == Codec.LZ4 else "zstd"
                ) as read:
                    return bytes(read.read())
    except (OSError, EOFError, zlib.error, struct.error) as e:
        raise ValueError(f"its records cannot be unpacked: {e}") from e
    raise ValueError(f"codec {codec} is not known")


def packed(codec: int, data: bytes) -> bytes:
    """The same records compressed, in a form that every client can read."""
    match codec:
        case Codec.GZIP:
            return gzip.compress(data, _GZIP_LEVEL, mtime=0)
        case Codec.SNAPPY:
            blocks = (bytes(_arrow("snappy").compress(block)) for block in _pieces(data, _SNAPPY_BLOCK))
            framed = (struct.pack(">i", len(block)) + block for block in blocks)
            return b"".join((_SNAPPY_JAVA, _SNAPPY_VERSIONS, *framed))
        case Codec.LZ4:
            check = xxhash.xxh32_intdigest(_LZ4_FLAGS) >> 8 & 0xFF
            return b"".join(
                (_LZ4_MAGIC, _LZ4_FLAGS, bytes([check]), *map(_lz4_block, _pieces(data, _LZ4_BLOCK)), _LZ4_END)
            )
        case Codec.ZSTD:
            return bytes(_arrow("zstd").compress(data))
    return data


def _arrow(name: str) -> Any:
    import pyarrow

    return pyarrow.Codec(name)


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[position : position + size] for position in range(0, len(data), size))


def _lz4_block(block: bytes) -> bytes:
    small = bytes(_arrow("lz4_raw").compress(block))
    if len(small) < len(block):
        return struct.pack("<I", len(small)) + small
    return struct.pack("<I", len(block) | _LZ4_AS_IT_IS) + block


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    """The blocks of snappy-java's frame, or the only block if there is no frame."""
    if not data.startswith(_SNAPPY_JAVA):
        yield data
        return
    position = len(_SNAPPY_JAVA) + len(_SNAPPY_VERSIONS)
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        position += 4 + length
        if length < 0 or position > len(data):
            raise EOFError("a block of snappy is cut")
        yield data[position - length : position]


def _snappy(block: bytes) -> bytes:
    """The records of a block. It begins with its length without compression: seven bits a byte, the lowest first."""
    length = 0
    for number, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return bytes(_arrow("snappy").decompress(block, length))
    raise EOFError("a block of snappy has no length")


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
        """The bytes of keys, values and headers. Raises ImportError without pyarrow."""
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
_FAR = 1 << 63  # ms; a time has 64 bits


def repacked(
    batches: Sequence[Batch],
    first: int,
    until: int,
    most: int | None = None,
    offsets: list[int] | None = None,
) -> Batch:
    """One batch with the records that ``batches`` have at the source offsets ``first <= offset < until``, as a producer
    would send it: without holes, and with the times that readers see. It has no records if they have none there. The
    batches are in their order, `UNDERSTOOD`, and of one codec, which stays. ``offsets`` gets their offsets.

    Raises Malformed, also if they are not in their order, or if more than ``most`` bytes of records are to be packed.
    Raises ImportError.
    """
    start, codec = batches[0], batches[0].attributes & CODEC
    base = start.base_timestamp if start.given_time is None else start.given_time
    kept, times, size, before = list[bytes](), list[int](), 0, start.base_offset
    for batch in batches:
        if batch.base_offset < before:
            raise Malformed(f"the batch at offset {batch.base_offset} comes behind one that ends at {before}")
        before = batch.until
        wanted = range(max(first - batch.base_offset, 0), min(until, batch.until) - batch.base_offset)
        try:
            data = unpacked(codec, batch.payload)
            size += len(data)
            if most is not None and size > most:
                raise ValueError(f"up to its end there are more than {most} bytes of records")
            places = list[int]()
            its_times = _keep(kept, places, data, batch, wanted, len(times), base)
            if its_times and (min(its_times) < -_FAR or max(its_times) >= _FAR):
                raise ValueError("its times are too far from that of the first batch")
            times += its_times
            if offsets is not None:
                offsets += [batch.base_offset + place for place in places]
        except (ValueError, IndexError) as e:
            raise Malformed(f"the batch at offset {batch.base_offset}: {e}") from e
    latest = base + max(times, default=0)
    if times and (latest >= _FAR or base + min(times) < -_FAR):  # clients add them modulo 2**64
        latest = max((base + time + _FAR) % (2 * _FAR) - _FAR for time in times)
    payload = packed(codec, b"".join(kept))
    return replace(
        start,
        attributes=start.attributes & AS_SENT,
        base_offset=max(first, start.base_offset),
        last_offset_delta=len(times) - 1,
        base_timestamp=base,
        max_timestamp=latest,
        count=len(times),
        payload=memoryview(payload),
        checksum=0,  # of nothing: no batch that was sent
        body=memoryview(b""),
    )


def _keep(
    kept: list[bytes],
    places: list[int],
    data: bytes,
    batch: Batch,
    wanted: range,
    already: int,
    base: int,
) -> list[int]:
    """Add the records of a batch whose offsets within it are ``wanted`` to ``kept``, where ``already`` so many are,
    and these offsets to ``places``. Returns their times, which count from ``base``.

    Most of the work is done here, so nothing is called for a record of the usual kind.
    """
    later = batch.base_timestamp - base
    given = None if batch.given_time is None else batch.given_time - base
    position, times, before, new, last = 0, list[int](), -1, already, batch.last_offset_delta
    for number in range(batch.count):
        if (length := data[position]) < 0x80:
            position += 1
        else:
            length, position = number_at(data, position)
        end = position + (length >> 1)
        if length & 1 or end > len(data):
            raise ValueError("a record is cut")
        if data[position]:  # no producer sets them, and with some of them a client takes another time
            raise ValueError(f"record {number} has attributes")
        if (time := data[position + 1]) < 0x80:
            position += 2
        else:
            time, position = number_at(data, position + 1)
        if (its := data[position]) < 0x80:
            position += 1
        else:
            its, position = number_at(data, position)
        # One behind the other, each within the batch: where there is no hole, this leaves one number for each record.
        if its & 1 or not before < (its := its >> 1) <= last or position > end:
            raise ValueError(f"record {number} does not say where in the batch it is")
        before = its
        if its in wanted:
            time = (time >> 1 ^ -(time & 1)) + later if given is None else given
            times.append(time)
            places.append(its)
            head = (
                b"\0"
                + (_ENCODED[time] if 0 <= time < _MANY else _encoded(time))
                + (_ENCODED[new] if new < _MANY else _encoded(new))
            )
            new += 1
            length = len(head) + end - position
            kept += ((_ENCODED[length] if length < _MANY else _encoded(length)) + head, data[position:end])
        position = end
    if position != len(data):
        raise ValueError("there is more behind its last record")
    return times


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
