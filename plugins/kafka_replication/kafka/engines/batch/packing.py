"""Sends small batches that follow each other as one batch, and large ones as they are stored.

A request carries one batch of a partition, and a broker answers one request of a connection at a time. So small batches
cost as many requests as there are, and where replicas are waited for, they cost that many round trips.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from kafka_replication.kafka.write.producers.batch_producer import BatchLane
from kafka_replication.model.errors import Unexpected
from kafka_replication.verification.digest import BatchDigest
from kafka_replication.wire.batch import CODEC, Batch, Malformed
from kafka_replication.wire.contents import frames
from kafka_replication.wire.repacking import repacked

LARGE = 128 << 10  # bytes; a batch of this size, as it is stored, is sent as it is
TOGETHER = 1_000_000  # bytes of the records that are sent as one batch, without compression, as they are estimated
REPORT = "another engine copies it; report this, as it is a fault of this program"
# Seconds that packing takes, and the least that a request costs client and broker (`python -m benchmarks.packing`).
A_RECORD, A_REQUEST = 1.3e-6, 0.4e-3
A_BYTE = (0.1e-9, 7e-9, 1.5e-9, 1.5e-9, 1.5e-9)  # by codec: none, gzip, snappy, lz4, zstd
MOST = 2 * TOGETHER  # bytes that they have in truth; clients unpack a batch as a whole


class Packing:
    """The batches of one chunk: sends them, and is their digest and their sums.

    ``count`` is the number of records, ``bytes`` what they hold: keys, values and headers, without compression.
    """

    def __init__(self, writer: BatchLane, largest: int) -> None:
        """``largest`` is the size in bytes of the largest batch that the target takes."""
        self._writer, self._largest = writer, largest
        self._small, self._together = list[Batch](), 0
        self._digest = BatchDigest()
        self._sent_until = 0  # one past the source offsets of what was sent
        self.count = self.bytes = 0

    def add(self, batch: Batch, size: int) -> None:
        """Add a batch that holds ``size`` bytes of keys, values and headers. It may be sent later.

        Raises ImportError, Unexpected if batches would not be sent in their order, and what the writer raises.
        """
        self.count, self.bytes = self.count + batch.count, self.bytes + size
        unpacked = size + frames(batch, size)
        most = min(TOGETHER, self._largest, self._writer.most)
        if self._small and (_codec(batch) != _codec(self._small[0]) or self._together + unpacked > most):
            self._send_small()
        # Small: packing it takes less time than a request of its own, as far as requests were seen to take here.
        to_pack = batch.count * A_RECORD + size * A_BYTE[_codec(batch)]
        if batch.size < LARGE and to_pack < max(A_REQUEST, self._writer.seconds_each):
            # Without the answer that it came in, which has other ones, and aborted ones, around it.
            apart = replace(batch, payload=memoryview(bytes(batch.payload)), body=memoryview(b""))
            self._small.append(apart)
            self._together += unpacked
        else:
            self._send_small()
            self._send(batch)

    def hexdigest(self) -> str:
        """Send what is left. The digest of all batches that were sent.

        Raises Unexpected if these are not all that were added, and what the writer raises.
        """
        self._send_small()
        if self._digest.count != self.count:
            raise Unexpected(f"{self._digest.count} records were sent of {self.count}", REPORT)
        return self._digest.hexdigest()

    def _send_small(self) -> None:
        small, self._small, self._together = self._small, [], 0
        if len(small) > 1:
            # The same ones are sent if the one batch would be too large, or one of them is damaged: what becomes of its
            # records is for the target and for its readers to say.
            with suppress(Malformed):
                one = repacked(small, small[0].base_offset, small[-1].until, MOST)
                small = [one] if one.size <= self._largest else small
        for batch in small:
            self._send(batch)

    def _send(self, batch: Batch) -> None:
        """The digest is of what is sent, so reading back cannot tell that two batches changed places here."""
        if batch.base_offset < self._sent_until:
            raise Unexpected(
                f"the batch at offset {batch.base_offset} would be sent behind one that ends at {self._sent_until}",
                REPORT,
            )
        self._sent_until = batch.until
        self._writer.write(batch)
        self._digest.add_batch(batch)


def _codec(batch: Batch) -> int:
    return batch.attributes & CODEC
