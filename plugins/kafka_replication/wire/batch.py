"""Record batches in format 2, as brokers store them: https://kafka.apache.org/documentation/#recordbatch"""

from __future__ import annotations

import struct
from collections.abc import Iterator
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
LAST_CODEC = 4  # none, gzip, snappy, lz4, zstd
# The attributes of a batch that can be sent and stored unchanged. Other bits mean that a broker set its times or its
# first timestamp, that it has no records, or that it is of a later version.
AS_SENT = CODEC | TRANSACTIONAL
# Those of a batch whose records are understood: a broker may have given it its time, or compacted it.
UNDERSTOOD = AS_SENT | LOG_APPEND_TIME | DELETE_HORIZON


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
