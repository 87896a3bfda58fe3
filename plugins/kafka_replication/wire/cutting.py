"""Cuts some records out of a batch into a new batch: https://kafka.apache.org/documentation/#record

Key, value, headers and times stay as they are, byte for byte; only offsets within the batch are written anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kafka_replication.wire.batch import CODEC, Batch, Malformed
from kafka_replication.wire.codecs import packed, unpacked


def cut(batch: Batch, first: int, until: int) -> Batch:
    """The records of the batch at the source offsets ``first <= offset < until``, of which there is at least one. The
    batch must have a record at each of its offsets.

    The codec stays, and the first timestamp, because the times of records are relative to it. Raises Malformed,
    ImportError.
    """
    first, until = max(first, batch.base_offset), min(until, batch.until)
    if (first, until) == (batch.base_offset, batch.until):
        return batch
    codec = batch.attributes & CODEC
    kept, times = bytearray(), list[int]()
    try:
        for number, record in enumerate(_records(unpacked(codec, batch.payload), batch.count), batch.base_offset):
            if first <= number < until:
                time, again = _moved(record, number - batch.base_offset, number - first)
                times.append(time)
                kept += again
        payload = packed(codec, bytes(kept))
    except (ValueError, IndexError) as e:
        raise Malformed(f"the batch at offset {batch.base_offset}: {e}") from e
    return replace(
        batch,
        base_offset=first,
        last_offset_delta=until - first - 1,
        max_timestamp=batch.base_timestamp + max(times),
        count=until - first,
        payload=memoryview(payload),
        checksum=0,  # of nothing: the batch as it was sent is not there any more
        body=memoryview(b""),
    )


def _records(data: bytes, count: int) -> Iterator[bytes]:
    """Each record without its length. Raises ValueError."""
    position = 0
    for _ in range(count):
        length, position = _number(data, position)
        if length < 0 or position + length > len(data):
            raise ValueError("a record is cut")
        yield data[position : position + length]
        position += length
    if position != len(data):
        raise ValueError("there is more behind its last record")


def _moved(record: bytes, delta: int, new_delta: int) -> tuple[int, bytes]:
    """The time of the record, relative to the batch's first one, and the record with its length and the new offset."""
    time, position = _number(record, 1)  # behind the attributes
    number, behind = _number(record, position)
    if number != delta:
        raise ValueError(f"record {delta} says that it is number {number}")
    content = record[:position] + _encoded(new_delta) + record[behind:]
    return time, _encoded(len(content)) + content


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to 64 bits, and the position behind it: zigzag, seven bits a byte, the lowest first."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def _encoded(value: int) -> bytes:
    left, out = value << 1 ^ value >> 63, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
