"""The batch engine: copies large record batches as the source stores them, without decompressing or decoding them, and
packs small ones into larger ones. The first and the last batch of a range may be cut, and what a broker changed,
by compaction or with a time of its own, is packed anew.

Sends small batches that follow each other as one batch, and large ones as they are stored.

A request carries one batch of a partition, and a broker answers one request of a connection at a time. So small batches
cost as many requests as there are, and where replicas are waited for, they cost that many round trips.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property

from kafka_replication.config import Copy
from kafka_replication.copying.engine import CHUNK_BYTES, Chunk, CopyTask, HandOver
from kafka_replication.copying.pipeline import Pipeline
from kafka_replication.copying.sink import Batches, Sink, SinkSession
from kafka_replication.kafka import clients, topics
from kafka_replication.kafka.batch_producer import BatchProducer, BatchRefused
from kafka_replication.kafka.batch_scan import BatchScan, connect
from kafka_replication.kafka.brokers import unsupported
from kafka_replication.kafka.callbacks import Throttling
from kafka_replication.ledger.entries import Ids, Position
from kafka_replication.ledger.offset_map import WrittenOffsets
from kafka_replication.model import combinations
from kafka_replication.model.errors import BadInput, ForeignWriter, Refused, Unexpected
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.runtime.garbage import without_gc
from kafka_replication.verification.digests import BATCH_DIGEST_KIND, BatchDigest
from kafka_replication.wire import fetching
from kafka_replication.wire.batch import CODEC, FRAME, LAST_CODEC, UNDERSTOOD, Batch, Malformed
from kafka_replication.wire.connection import Connection
from kafka_replication.wire.contents import Contents, Repacking, frames, repacked

LARGE = 128 << 10  # bytes; a batch of this size, as it is stored, is sent as it is
TOGETHER = 1_000_000  # bytes of the records that are sent as one batch, without compression
SPARE = 64  # one part of so many of what a target takes is left for what compression may add
REPORT = "another engine copies it; report this, as it is a fault of this program"
# Seconds that packing takes, and the least that a request costs client and broker (`python -m benchmarks.packing`).
A_RECORD, A_REQUEST = 1.3e-6, 0.4e-3
A_BYTE = (0.1e-9, 7e-9, 1.5e-9, 1.5e-9, 1.5e-9)  # by codec: none, gzip, snappy, lz4, zstd


class Packing:
    """The batches of one chunk: sends them, and is their digest and their sums.

    ``count`` is the number of records, ``bytes`` what they hold: keys, values and headers, without compression.
    """

    def __init__(self, writer: BatchProducer, largest: int, contents: Contents) -> None:
        """``largest`` is the size in bytes of the largest batch that the target takes; ``contents`` estimates sizes."""
        self._writer, self._largest, self._contents = writer, largest, contents
        self._small: Repacking | None = None
        self._alone: Batch | None = None  # the only batch in it
        self._most = 0  # bytes of records that it takes
        self._unpacked = 1.0  # bytes of records for each stored byte, as in the batches that were unpacked last
        self._digest = BatchDigest()
        self.offsets = WrittenOffsets()  # of the source
        self._sent_until = 0  # one past the source offsets of what was sent
        self.count = self.bytes = 0

    def add_whole(self, batches: Iterable[Batch]) -> None:
        """Add batches that follow each other, and are as a producer sent them. They may be sent later.

        Raises ImportError, Unexpected if batches would not be sent in their order, what the writer raises, and what
        ``batches`` raise: those that came before are added then.
        """
        left = iter(batches)
        batch = next(left, None)
        while batch is not None:
            self.add(batch, range(batch.base_offset, batch.until))
            batch = self._add_next(left)

    def _add_next(self, batches: Iterator[Batch]) -> Batch | None:
        """Add to the small ones, if there are any, those of ``batches`` that are certainly small. Returns the next one,
        which may not be; None if there are no more.
        """
        if (small := self._small) is None:
            return next(batches, None)
        half = max(A_REQUEST, self._writer.seconds_each) / 2
        a_byte = A_BYTE[small.codec] if small.codec else max(A_BYTE)  # one with a codec may follow
        largest = min(LARGE - 1, int(half / (self._unpacked * a_byte)))
        count, until = len(small.times), small.until
        try:
            return small.add_next(batches, largest, int(half / A_RECORD), self._most)
        finally:  # also if the next one cannot be read
            if added := len(small.times) - count:
                self._alone = None
                self.count += added
                self.offsets.add(range(until, small.until))

    def add(self, batch: Batch, offsets: Sequence[int]) -> None:
        """Add a batch with records at these source offsets. Raises as `add_whole`."""
        self.offsets.add(offsets)
        self._put(batch)

    def _put(self, batch: Batch) -> None:
        """A batch is small if packing it takes less time than a request of its own, as requests were seen to take."""
        _, _, attributes, _, _, _, _, _, count, payload = batch
        self.count += count
        seconds = count * A_RECORD + (size := len(payload)) * self._unpacked * A_BYTE[attributes & CODEC]
        if size < LARGE and (seconds < A_REQUEST or seconds < self._writer.seconds_each):
            if (small := self._small) is not None and small.add_whole(batch, self._most):
                self._alone = None
                return
            if self._pack(batch):
                return
        self._send_small()
        self.bytes += self._contents.of(batch)
        self._send(batch)

    def _pack(self, batch: Batch) -> bool:
        """Begin with this small one to put records together. False if it is too large for that, or damaged. What
        becomes of its records is for the target and for its readers to say.
        """
        self._send_small()
        self._most = min(TOGETHER, self._largest - self._largest // SPARE - FRAME, self._writer.most)
        # Without the answer that it came in, which has other ones, and aborted ones, around it.
        self._alone = batch._replace(payload=memoryview(bytes(batch.payload)))
        small = Repacking(self._alone)
        self._small = small if small.add_whole(self._alone, self._most) else None
        return self._small is not None

    def hexdigest(self) -> str:
        """Send what is left. The digest of all batches that were sent.

        Raises Unexpected if these are not all that were added, and what the writer raises.
        """
        self._send_small()
        if self._digest.count != self.count:
            raise Unexpected(f"{self._digest.count} records were sent of {self.count}", REPORT)
        return self._digest.hexdigest()

    def _send_small(self) -> None:
        small, self._small = self._small, None
        if small is not None:
            batch = self._alone or small.packed(0)
            self._unpacked = small.size / max(1, len(batch.payload))
            self.bytes += max(0, small.size - frames(batch, small.size))
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


# The record engine may get further: its client has other ways to connect. Or it says it better, and names the record.
_FOR_ANOTHER = (BatchRefused, Malformed, BadInput, Refused, Unexpected, ImportError)


class BatchEngine:
    """Copies what it can send exactly as it is; hands over the rest."""

    name = "batch/1"
    digest_kind = BATCH_DIGEST_KIND

    def __init__(self, source: clients.ClientConfig, settings: Copy, pipeline: Pipeline | None = None) -> None:
        self._source, self._settings, self._pipeline = source, settings, pipeline

    def supports(self, task: CopyTask, sink: Sink) -> str | None:
        if self._pipeline is not None:
            return combinations.why_not_batches({"pipeline": (combinations.CHANGED,)})
        return unsupported(self._source) or sink.why_not_batches(task.key.target_topic)

    def reader(self, task: CopyTask) -> closing[BatchReader]:
        return closing(BatchReader(task, self._source, self._settings))


class BatchReader:
    """A `SourceReader` over one connection to the partition's leader."""

    def __init__(self, task: CopyTask, source: clients.ClientConfig, settings: Copy) -> None:
        self._at, self._source, self._settings = task.key.source, source, settings
        self._end = task.range.until
        self._throttling = Throttling(str(self._at), "source")
        self._contents = Contents()
        self._next: int | None = None  # the offset that is read next
        self._read: tuple[int, int] | None = None  # a leader epoch, and up to which offset its records were read

    @cached_property
    def _scan(self) -> BatchScan:
        limit = self._settings.throughput_limit
        scan = BatchScan(self._source, self._at, self._settings.stall_timeout, self._throttling, limit)
        scan.passing = self.is_at
        return scan

    @property
    def throttled(self) -> float:
        return self._throttling.seconds

    def close(self) -> None:
        self._scan.close()

    def check_ids(self, ids: Ids) -> None:
        topics.check_id(clients.shared_admin(self._source), self._at.topic, ids.source_topic, "source")

    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        try:
            if (batches := target.batches) is None:
                raise HandOver(self._end, "the target takes no whole batches")
            if self._next != left.from_:
                self._go_to(left, position)
            with without_gc():
                return self._copy(left, batches, most_records)
        except ForeignWriter:  # another engine would append all the same
            raise
        except _FOR_ANOTHER as e:
            raise HandOver(self._end, str(e)) from e

    def _copy(self, left: OffsetRange, target: Batches, most_records: int) -> Chunk:
        first = self._scan.peek(left.until)
        if first is not None and self._scan.position == left.from_:
            why = _why_not(first) or _too_large(_fit(first, left.from_, left.until)[0], target.largest)
            if why:  # it cannot be sent as it is
                raise HandOver(self._end, why)
        writer = target.begin()
        packing = Packing(writer, target.largest, self._contents)
        try:
            self._fill(packing, left, most_records, target.largest)
        except Malformed:
            if not packing.count:
                raise
            # What comes before it is copied first, and the next chunk begins with it.
        if self._scan.leader_epoch is not None:
            self.is_at(self._scan.leader_epoch, self._scan.position)
        digest = packing.hexdigest()
        placement = writer.finish(digest)
        self._next = self._scan.position
        return Chunk(
            range=OffsetRange(left.from_, self._next),
            count=packing.count,
            bytes=packing.bytes,
            digest=digest,
            placement=placement,
            leader_epoch=self._scan.leader_epoch,
            offsets=packing.offsets,
        )

    def _fill(self, packing: Packing, left: OffsetRange, most_records: int, largest: int) -> None:
        """Write batches until the chunk is full, the range ends, or what follows has to be handed over."""
        full = time.monotonic() + self._settings.chunk_seconds
        while (batch := self._scan.peek(left.until)) is not None:
            if packing.count and (packing.bytes > CHUNK_BYTES or time.monotonic() > full):
                return
            before = packing.count
            packing.add_whole(self._scan.take_whole(left.until, most_records - before, largest))
            if packing.count > before:
                continue
            if _why_not(batch):
                return
            batch, offsets = _fit(batch, self._scan.position, left.until)
            if not batch.count:
                self._scan.take(left.until)
                continue
            if _too_large(batch, largest):
                return
            if packing.count and (
                packing.count + batch.count > most_records
                or packing.bytes + batch.size > CHUNK_BYTES
                or time.monotonic() > full
            ):
                return
            packing.add(batch, offsets)
            self._scan.take(left.until)

    def _go_to(self, left: OffsetRange, position: Position) -> None:
        self._scan.go_to(left.from_)
        self._read = None
        epoch = position.leader_epoch
        if left.from_ > position.next_offset or epoch is None:
            return
        if left.from_ == position.next_offset:
            self._read = epoch, left.from_
        # Also before older offsets: from a log that was cut off and grew again, other records would come.
        self._check_epoch(self._scan.connection, epoch, position.next_offset)

    def is_at(self, epoch: int, until: int) -> None:
        """A batch of this leader epoch is passed. Raise HandOver if what was read before is no longer in the log."""
        if self._read is not None and self._read[0] != epoch:
            with connect(self._source, self._at, self._settings.stall_timeout) as leader:
                self._check_epoch(leader, *self._read)
        self._read = epoch, until

    def _check_epoch(self, leader: Connection, epoch: int, read: int) -> None:
        """Raise HandOver if an unclean election cut off what was read of this leader epoch, up to ``read``."""
        end = fetching.end_of_epoch(leader, self._at.topic, self._at.partition, epoch)
        if end is None or end < read:
            raise HandOver(self._end, f"the leader epoch {epoch} of the source now ends at {end}")


def _fit(batch: Batch, first: int, until: int) -> tuple[Batch, Sequence[int]]:
    """The part of the batch at these source offsets, which may be all of it or nothing, as a producer would send it,
    and the offsets of its records.
    """
    whole = first <= batch.base_offset and batch.until <= until
    dense = batch.count == batch.last_offset_delta + 1  # a record at each of its offsets
    if whole and dense and batch.is_as_sent:
        return batch, range(batch.base_offset, batch.until)
    return repacked([batch], first, until)


def _why_not(batch: Batch) -> str | None:
    """The reason why the records of this batch cannot be sent as they are; None if they can."""
    if batch.attributes & ~UNDERSTOOD or batch.attributes & CODEC > LAST_CODEC:
        return f"the batch at offset {batch.base_offset} has the attributes {batch.attributes:#x}"
    return None


def _too_large(batch: Batch, largest: int) -> str | None:
    if batch.size > largest:
        return f"the batch at offset {batch.base_offset} has {batch.size} bytes, the target topic takes {largest}"
    return None
