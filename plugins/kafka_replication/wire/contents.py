"""The size of what a batch holds: keys, values and headers of its records, without compression."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from kafka_replication.wire.batch import CODEC, Batch
from kafka_replication.wire.codecs import Codec, unpacked

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
