"""Record batches in format 2, as brokers store them: https://kafka.apache.org/documentation/#recordbatch

Compresses and decompresses their records. The packages of the codecs are imported at their first use. Raises
ImportError without them.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from crc32c import crc32c

# first offset, length behind this field, leader epoch, format, checksum
_HEAD = struct.Struct(">qiibI")
# attributes, last offset delta, first and last timestamp, producer id, its epoch, first sequence number, record count
_BODY = struct.Struct(">hiqqqhii")
_BEFORE_LENGTH = 12  # bytes that the length does not count
_WHOLE = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">8xi").unpack_from
FRAME = _WHOLE.size  # bytes of a batch without records
CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0b111, 0b1000, 0b10000, 0b100000, 0b1000000
# The attributes of a batch that can be sent and stored unchanged. Other bits mean that a broker set its times or its
# first timestamp, that it has no records, or that it is of a later version.
AS_SENT = CODEC | TRANSACTIONAL
# Those of a batch whose records are understood: a broker may have given it its time, or compacted it.
UNDERSTOOD = AS_SENT | LOG_APPEND_TIME | DELETE_HORIZON


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)


LAST_CODEC = int(max(Codec))


class Malformed(ValueError):
    """Raised if the broker's bytes are no batch of format 2, or if the checksum is wrong."""


class Batch(NamedTuple):
    """One batch of a fetch. ``payload`` is its records, compressed by the codec of its attributes."""

    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    count: int  # type: ignore[assignment]  # of its records, in place of a tuple's method
    payload: memoryview

    @property
    def until(self) -> int:
        """One past the last offset of the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size(self) -> int:
        """The size in bytes, as brokers count it."""
        return FRAME + len(self.payload)

    @property
    def is_control(self) -> bool:
        """True if no reader sees it: a marker, or a batch whose transaction was aborted (`without_aborted`)."""
        return bool(self.attributes & CONTROL)

    @property
    def is_as_sent(self) -> bool:
        """True if the attributes show no change by a broker, and no later version."""
        return not self.attributes & ~AS_SENT

    @property
    def given_time(self) -> int | None:
        """The time in ms that a broker gave to all of its records; None if each has its own."""
        return self.max_timestamp if self.attributes & LOG_APPEND_TIME else None

    def framed(self, producer_id: int, producer_epoch: int, sequence: int) -> tuple[bytes, memoryview]:
        """Header and records of the same batch, in the form that a transactional producer sends."""
        body = _BODY.pack(
            self.attributes & CODEC | TRANSACTIONAL,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            sequence,
            self.count,
        )
        checksum = crc32c(self.payload, crc32c(body))
        return _HEAD.pack(0, self.size - _BEFORE_LENGTH, -1, 2, checksum) + body, self.payload


def batches(data: memoryview, *, checked: bool = False) -> Iterator[Batch]:
    """The complete batches at the beginning of ``data``. Raises Malformed for another format, and for a wrong checksum
    if they are to be ``checked``.
    """
    position, size, new, unpack = 0, len(data), tuple.__new__, _WHOLE.unpack_from
    while position + FRAME <= size:
        first, length, epoch, version, checksum, attributes, delta, earliest, latest, producer, its_epoch, _, count = (
            unpack(data, position)
        )
        if version != 2:
            raise Malformed(f"the batch at offset {first} has format {version}")
        end = position + _BEFORE_LENGTH + length
        if length < FRAME - _BEFORE_LENGTH:
            raise Malformed(f"the batch at offset {first} says that it has {length} bytes")
        if end > size:
            return
        if checked and crc32c(data[position + _HEAD.size : end]) != checksum:
            raise Malformed(f"the checksum of the batch at offset {first} is wrong")
        payload = data[position + FRAME : end]
        # A third of the time of `Batch(...)`, which calls a function written in Python.
        yield new(Batch, (first, epoch, attributes, delta, earliest, latest, producer, its_epoch, count, payload))
        position = end


def end_of_whole(data: memoryview) -> int | None:
    """One past the last offset of the complete batches at the beginning of ``data``; None if there are none. It looks
    at their lengths alone, and no further than one that is not as it should be.
    """
    position, last = 0, None
    while position + FRAME <= len(data):
        length = _LENGTH(data, position)[0]
        if length < FRAME - _BEFORE_LENGTH or position + _BEFORE_LENGTH + length > len(data):
            break
        last, position = position, position + _BEFORE_LENGTH + length
    if last is None:
        return None
    first, _, _, _, _, _, delta, *_ = _WHOLE.unpack_from(data, last)
    return int(first) + int(delta) + 1


_GZIP_LEVEL = 1  # three times as fast as 6, the default of clients, for an eighth more bytes
# snappy-java's frames, which all clients read: this, two versions, and blocks. The length of a block precedes it.
_SNAPPY_JAVA = b"\x82SNAPPY\x00"
_SNAPPY_VERSIONS = struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK = 32 << 10
# Blocks of 256 KiB: together a seventh smaller than of 64 KiB. Java's client takes only blocks that do not depend on
# each other.
_LZ4_BLOCK = 5
_ZSTD_LEVEL = 1


def unpacked(codec: int, data: memoryview) -> bytes:
    """The records without compression. Raises ValueError for damaged data, or a codec that is not known. Raises
    ImportError.
    """
    try:
        return unpacker(codec)(data)
    except DAMAGED as e:
        raise ValueError(f"its records cannot be unpacked: {e}") from e


# Raised by what `unpacker` gives. MemoryError: for a frame of lz4 that says it has more than there can be.
DAMAGED = (OSError, EOFError, RuntimeError, MemoryError, zlib.error, struct.error)


@cache
def unpacker(codec: int) -> Callable[[memoryview], bytes]:
    """The function that takes records of this codec out of their compression. Raises ValueError, ImportError."""
    match codec:
        case Codec.NONE:
            return bytes
        case Codec.GZIP:
            return gzip.decompress
        case Codec.SNAPPY:
            return _snappy
        case Codec.LZ4:
            from lz4.frame import decompress

            return decompress  # type: ignore[no-any-return]
        case Codec.ZSTD:
            return _zstd
    raise ValueError(f"codec {codec} is not known")


def packed(codec: int, data: bytes | bytearray) -> bytes:
    """The same records compressed, in a form that every client can read."""
    match codec:
        case Codec.GZIP:
            return gzip.compress(data, _GZIP_LEVEL, mtime=0)
        case Codec.SNAPPY:
            import cramjam

            pieces = (data[at : at + _SNAPPY_BLOCK] for at in range(0, len(data), _SNAPPY_BLOCK))
            blocks = map(bytes, map(cramjam.snappy.compress_raw, pieces))
            framed = (struct.pack(">i", len(block)) + block for block in blocks)
            return b"".join((_SNAPPY_JAVA, _SNAPPY_VERSIONS, *framed))
        case Codec.LZ4:
            import lz4.frame

            return bytes(lz4.frame.compress(data, block_size=_LZ4_BLOCK, block_linked=False, store_size=False))
        case Codec.ZSTD:
            import zstandard

            return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(data)
    return bytes(data)


def _snappy(data: memoryview) -> bytes:
    """The blocks of snappy-java's frame, or the only block if there is no frame."""
    from cramjam import DecompressionError, snappy

    whole, position, blocks = bytes(data), len(_SNAPPY_JAVA) + len(_SNAPPY_VERSIONS), list[bytes]()
    try:
        if not whole.startswith(_SNAPPY_JAVA):
            return bytes(snappy.decompress_raw(whole))
        while position < len(whole):
            (length,) = struct.unpack_from(">i", whole, position)
            position += 4 + length
            if length < 0 or position > len(whole):
                raise EOFError("a block of snappy is cut")
            blocks.append(bytes(snappy.decompress_raw(whole[position - length : position])))
    except DecompressionError as e:
        raise OSError(str(e)) from e
    return b"".join(blocks)


def _zstd(data: memoryview) -> bytes:
    """All frames, one behind the other: with their sizes or without."""
    import zstandard

    left, parts = bytes(data), list[bytes]()
    while left or not parts:
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            parts.append(frame.decompress(left))
        except zstandard.ZstdError as e:
            raise OSError(str(e)) from e
        if not frame.eof:
            raise EOFError("a frame of zstd is cut")
        left = frame.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)
