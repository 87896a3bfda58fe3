"""The size of what a batch holds: keys, values and headers of its records, without compression."""

from __future__ import annotations

from contextlib import suppress

from kafka_replication.wire.batch import CODEC, Batch
from kafka_replication.wire.codecs import Codec, unpacked

EACH = 16  # of so many batches of a codec one is unpacked; the others are taken to be compressed as well as it


class Contents:
    """Estimates the sizes of batches that follow each other in one partition.

    The size without compression is exact for a batch without compression, and for each 16th of the others of a codec.
    The frames around the fields of a record are subtracted; their lengths are taken from the mean of the batch, which
    is right to about one byte a record.
    """

    def __init__(self) -> None:
        self._codecs: dict[int, tuple[int, float]] = {}  # batches so far, and the ratio of the last unpacked one

    def of(self, batch: Batch) -> int:
        """The bytes of keys, values and headers. Raises ImportError without pyarrow."""
        stored = len(batch.payload)
        if not batch.count:
            return 0
        if (codec := batch.attributes & CODEC) != Codec.NONE and stored:
            seen, ratio = self._codecs.get(codec, (0, 1.0))
            if seen % EACH == 0:
                with suppress(ValueError):  # damaged: an estimate does not decide what becomes of it
                    ratio = len(unpacked(codec, batch.payload)) / stored
            self._codecs[codec] = seen + 1, ratio
            stored = round(stored * ratio)
        return max(0, stored - frames(batch, stored))


def frames(batch: Batch, size: int) -> int:
    """The bytes of a batch of ``size`` bytes, without compression, that are neither key, value nor header: for each
    record its length, those of key and value, the number of headers, attributes, and what it adds to time and offset
    (https://kafka.apache.org/documentation/#record).
    """
    time = (batch.max_timestamp - batch.base_timestamp) // 2
    record = size // max(1, batch.count)
    return batch.count * (3 + 2 * _length(record) + _length(time) + _length(batch.last_offset_delta // 2))


def _length(number: int) -> int:
    """The bytes of a number, zigzag and seven bits a byte."""
    return (max(1, 2 * number).bit_length() + 6) // 7
