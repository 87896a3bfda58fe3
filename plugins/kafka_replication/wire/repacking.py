"""Packs records of one or several batches into a new batch: https://kafka.apache.org/documentation/#record

Key, value, headers and times stay as they are, byte for byte. Written anew are the length of a record, its offset
within the batch, and its time, which counts from the batch's first time. With
``message.timestamp.type=LogAppendTime`` all records of a batch have its latest time, whatever they say themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafka_replication.wire.batch import AS_SENT, CODEC, Batch, Malformed
from kafka_replication.wire.codecs import packed, unpacked


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


def repacked(batches: Sequence[Batch], first: int, until: int, most: int | None = None) -> Batch:
    """One batch with the records that ``batches`` have at the source offsets ``first <= offset < until``, as a producer
    would send it: without holes, and with the times that readers see. It has no records if they have none there. The
    batches are in their order, `UNDERSTOOD`, and of one codec, which stays.

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
            found = _keep(kept, data, batch, wanted, len(times), base)
            if found and (min(found) < -_FAR or max(found) >= _FAR):
                raise ValueError("its times are too far from that of the first batch")
            times += found
        except (ValueError, IndexError) as e:
            raise Malformed(f"the batch at offset {batch.base_offset}: {e}") from e
    payload = packed(codec, b"".join(kept))
    return replace(
        start,
        attributes=start.attributes & AS_SENT,
        base_offset=max(first, start.base_offset),
        last_offset_delta=len(times) - 1,
        base_timestamp=base,
        max_timestamp=_latest(base, times) if times else base,
        count=len(times),
        payload=memoryview(payload),
        checksum=0,  # of nothing: no batch that was sent
        body=memoryview(b""),
    )


def _latest(base: int, times: Sequence[int]) -> int:
    """The latest of these times, which count from ``base``. Clients add them modulo 2**64."""
    if base + min(times) >= -_FAR and base + max(times) < _FAR:
        return base + max(times)
    return max((base + time + _FAR) % (2 * _FAR) - _FAR for time in times)


def _keep(kept: list[bytes], data: bytes, batch: Batch, wanted: range, already: int, base: int) -> list[int]:
    """Add the records of a batch whose offsets within it are ``wanted`` to ``kept``, where ``already`` so many are.
    Returns their times, which count from ``base``.

    Most of the work is done here, so nothing is called for a record of the usual kind.
    """
    later = batch.base_timestamp - base
    given = None if batch.given_time is None else batch.given_time - base
    at, times, before, new, last = 0, list[int](), -1, already, batch.last_offset_delta
    for number in range(batch.count):
        if (length := data[at]) < 0x80:
            at += 1
        else:
            length, at = number_at(data, at)
        end = at + (length >> 1)
        if length & 1 or end > len(data):
            raise ValueError("a record is cut")
        if data[at]:  # no producer sets them, and with some of them a client takes another time
            raise ValueError(f"record {number} has attributes")
        if (time := data[at + 1]) < 0x80:
            at += 2
        else:
            time, at = number_at(data, at + 1)
        if (its := data[at]) < 0x80:
            at += 1
        else:
            its, at = number_at(data, at)
        # One behind the other, each within the batch: where there is no hole, this leaves one number for each record.
        if its & 1 or not before < (its := its >> 1) <= last or at > end:
            raise ValueError(f"record {number} does not say where in the batch it is")
        before = its
        if its in wanted:
            time = (time >> 1 ^ -(time & 1)) + later if given is None else given
            times.append(time)
            head = (
                b"\0"
                + (_ENCODED[time] if 0 <= time < _MANY else _encoded(time))
                + (_ENCODED[new] if new < _MANY else _encoded(new))
            )
            new += 1
            length = len(head) + end - at
            kept += ((_ENCODED[length] if length < _MANY else _encoded(length)) + head, data[at:end])
        at = end
    if at != len(data):
        raise ValueError("there is more behind its last record")
    return times


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """The number at this place, before its sign is decoded, and the place behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
