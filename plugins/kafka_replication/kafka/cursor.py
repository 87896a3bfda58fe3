"""Reads bounded parts of one partition with one of the pooled consumers: their records, and the digests of these."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import Message

from kafka_replication.copying.sink import Record, RefusedAt
from kafka_replication.kafka import clients
from kafka_replication.kafka.consumer_pool import borrowed, paced
from kafka_replication.kafka.reading import PartitionReader, Truncated, offset_of, record_of
from kafka_replication.ledger.entries import Receipt
from kafka_replication.model.errors import Refused, TargetLost
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.verification.digests import BatchDigest, Digest, record_digest, set_aside
from kafka_replication.verification.matching import Seen, Sent

if TYPE_CHECKING:
    from kafka_replication.kafka.batch_scan import BatchCursor


Change = Callable[[Record], Iterable[Record]]  # makes the records to write of a source record
# The remedy of `TargetLost`.
RUN_AGAIN = "run again: what the receipts prove is copied again, or the run says why not; find out what truncated it"
# A broker answers a fetch that finds nothing after its longest wait, by default 100 ms.
_MOSTLY_EMPTY: dict[str, Any] = {"fetch.wait.max.ms": 5}


def first_record(config: clients.ClientConfig, group: str, at: TopicPartition, wanted: OffsetRange) -> int | None:
    """The offset of the first record in ``wanted`` that a ``read_committed`` reader sees, or None. Raises TargetLost if
    the partition, which is the target's, was truncated.
    """
    if not wanted.span:
        return None
    try:
        with borrowed(config, group, **_MOSTLY_EMPTY) as consumer:
            return next((offset_of(message) for message in PartitionReader(consumer, at).records(wanted)), None)
    except Truncated as cut:
        raise TargetLost(cut.what, RUN_AGAIN) from cut


def batch_cursor(config: clients.ClientConfig, at: TopicPartition, stall: float, limit: int | None) -> BatchCursor:
    """Reads what the batch engine copied. Raises Refused where its packages are missing."""
    try:
        from kafka_replication.kafka.batch_scan import BatchCursor  # only who needs it loads it
    except ModuleNotFoundError as missing:
        raise Refused(
            f"{at}: what the batch engine copied cannot be read back here: {missing}",
            "install kafka-replication[batch] on every executor, whatever copy.engine is now; then run again",
        ) from missing
    return BatchCursor(config, at, stall, limit)


class Cursor:
    """A `PartitionReader` with a ``read_committed`` consumer."""

    def __init__(
        self, config: clients.ClientConfig, group: str, at: TopicPartition, stall: float, limit: int | None = None
    ) -> None:
        self._config, self._at, self._stall, self._limit = config, at, stall, limit
        self._stack = ExitStack()
        self._reader = PartitionReader(
            self._stack.enter_context(borrowed(paced(config, limit), group)), at, stall, limit
        )
        self.records = 0  # how many `seen` and `sent` read

    def close(self) -> None:
        self._stack.close()

    def add_to(self, total: Digest, wanted: OffsetRange) -> None:
        """Add what is in ``wanted``."""
        if isinstance(total, BatchDigest):
            self._add_batches(wanted, total)
            self.records += total.count
        else:
            for _ in self.seen(wanted, total):
                pass

    def _add_batches(self, wanted: OffsetRange, total: BatchDigest) -> None:
        with closing(batch_cursor(self._config, self._at, self._stall, self._limit)) as batches:
            batches.read([wanted], total)

    def read(self, wanted: OffsetRange, *, trusting: bool = False) -> Iterator[Message]:
        """The records in ``wanted``, as `PartitionReader.records`."""
        return self._reader.records(wanted, trusting=trusting)

    def content(self, wanted: OffsetRange) -> Iterator[Record]:
        """The same, decoded. Raises SystemError for a record that the client cannot decode."""
        return map(record_of, self.read(wanted))

    def copied(self, receipt: Receipt) -> Iterator[Record]:
        """The records of a chunk, without those that it set aside. Raises SystemError as `content` does."""
        aside = set_aside(receipt)
        for message in self.read(receipt.range, trusting=True):
            self.records += 1
            if offset_of(message) not in aside:
                yield record_of(message)

    def seen(self, wanted: OffsetRange, total: Digest | None = None) -> Iterator[Seen]:
        """The records in ``wanted``. Each is also added to ``total``; to a digest of batches, those that are there.

        One that the client cannot decode has a digest that no record has; with a ``total`` it raises SystemError.
        """
        if isinstance(total, BatchDigest):
            self._add_batches(wanted, total)
            total = None
        for message in self.read(wanted):
            self.records += 1
            try:
                offset, *fields = record_of(message)
            except SystemError:
                if total is not None:
                    raise
                yield Seen(offset_of(message), b"")
                continue
            if total is not None:
                total.add(*fields)
            yield Seen(offset, record_digest(*fields))

    def sent(
        self,
        wanted: OffsetRange,
        *,
        change: Change | None = None,
        places: Iterator[int] | None = None,
        without: Container[int] | None = None,
        lenient: bool = False,
    ) -> Iterator[Sent]:
        """The records in ``wanted`` as they were sent: what ``change`` makes of each, the n-th to the n-th of
        ``places``. The offsets ``without`` are left out, and if ``lenient`` records that cannot be copied.
        """
        for message in self.read(wanted, trusting=True):
            self.records += 1
            if without is not None and offset_of(message) in without:
                continue
            try:
                record = record_of(message)
                made = change(record) if change else (record,)
            except (RefusedAt, SystemError):
                if lenient:
                    continue
                raise
            for offset, *fields in made:
                yield Sent(offset, record_digest(*fields), None if places is None else next(places, None))
