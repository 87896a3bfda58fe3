"""Compresses and decompresses the records of a batch: https://kafka.apache.org/documentation/#recordbatch, codecs 0 to
4.

Only code that cuts a batch needs it, so pyarrow is imported at its first use. Raises ImportError without it.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import xxhash


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
