"""Writes one chunk's records into the open transaction of a Kafka producer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.read.scan import offset_of
from kafka_replication.kafka.write.producer_base import Sender
from kafka_replication.kafka.write.quarantine_writer import AsideWriter
from kafka_replication.kafka.write.send_window import SendWindow
from kafka_replication.ledger.entries import FailedRecord
from kafka_replication.ledger.placement import KafkaSegments, Placement, Segment
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.failures import Failure, FailureKind
from kafka_replication.model.keys import PartitionKey
from kafka_replication.runtime.stall_clock import StallClock
from kafka_replication.sinks.port import Record, RefusedAt, Screen, size_of

REFUSALS = {
    KafkaError.MSG_SIZE_TOO_LARGE: "it is larger than the target topic's max.message.bytes",
    KafkaError.INVALID_TIMESTAMP: "its timestamp is outside the limits of the target topic",
    KafkaError.INVALID_RECORD: "the target's broker calls it invalid (a compacted topic takes no record without a key)",
    KafkaError._INVALID_DIFFERENT_RECORD: "another record of its batch is refused",
    KafkaError._INVALID_ARG: "the client calls it invalid",
}
UNKNOWN = -1  # no target offset acknowledged yet
_TIMESTAMP_LIMITS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "message.timestamp.type")


@dataclass(slots=True, kw_only=True)
class ChunkWriter:
    """A `RecordWriter`: produces the records of one chunk, and learns where the target stored them.

    The writer keeps the last record back until the next one arrives. So only a chunk's first and last record get a
    delivery callback: a callback for every record costs 0.25-0.35 s per million records.
    """

    key: PartitionKey
    transaction: Sender
    window: SendWindow
    limits: Mapping[str, str]  # the target topic's configuration
    aside: AsideWriter | None = None  # None: nothing is set aside
    check_between: Callable[[int], None]  # raises ForeignWriter if a foreign record lies below this target offset
    _sent: int = 0  # records that were given to the producer, including the current batch
    _first: Record | None = None
    _kept_back: list[Record] = field(default_factory=list)  # at most one
    _first_offset: int = UNKNOWN
    _last_offset: int = UNKNOWN
    _failed: KafkaError | None = None
    _suspects: set[int] = field(default_factory=set)  # source offsets of records that may be refused
    _refused: list[tuple[Record, int]] = field(default_factory=list)  # watched records, and why they were refused

    @property
    def screen(self) -> Screen | None:
        return self._screened if self.aside is not None and self.aside.rules.anything else None

    def _screened(self, record: Record) -> Failure | None:
        assert self.aside is not None
        failure = self.aside.rules.known.get(record[0]) or self.aside.limits.refusal(record)
        if failure is None and self.aside.limits.is_suspect(record):
            self._suspects.add(record[0])
        return failure

    def set_aside(self, record: Record, failure: Failure) -> None:
        assert self.aside is not None
        self.aside.add(record, failure)

    @property
    def full(self) -> bool:
        return self.aside is not None and self.aside.full

    @property
    def failures(self) -> tuple[FailedRecord, ...]:
        return self.aside.records if self.aside else ()

    def write(self, records: Sequence[Record]) -> None:
        """Produce all but the last of these records, after the one kept back. Raises RefusedAt, Stalled, Fenced.

        Waits while more records are not acknowledged than the target takes in a few seconds.
        """
        self.transaction.writes_to(self.key.target_topic)
        batch = [*self._kept_back, *records]
        self._kept_back = batch[-1:]
        self._act(lambda: self._produce(batch[:-1]))
        stall = self.transaction.stall_clock()
        self.window.hold_back(batch, lambda: len(self.transaction.producer), lambda left: self._wait(stall, left))

    def _wait(self, stall: StallClock, left: int) -> None:
        """Wait a moment for acknowledgements, while ``left`` records have none."""
        self.transaction.check_progress(stall, left)
        self._act(lambda: self.transaction.producer.poll(0.05))
        if stall.is_old(1.0):
            self._raise_failure()

    def finish(self, digest: str) -> Placement:
        """Wait until the target acknowledged every record. Raises also ForeignWriter."""
        self._act(self._produce_last)
        if self._sent or self.failures:
            self._flush()
        return self._placement(digest)

    def _flush(self) -> None:
        try:
            self.transaction.flush()
        except ReplicationError:
            self._raise_failure()  # a refused record, or being fenced, explains why later records did not arrive
            raise
        self._raise_failure()
        if self.aside is not None:
            self.aside.check_acknowledged()

    def _placement(self, digest: str) -> Placement:
        if not self._sent:
            return KafkaSegments()
        segment = self._segment(digest)
        self.check_between(segment.first)
        return KafkaSegments((segment,))

    @property
    def sent(self) -> int:
        """How many records the producer was given."""
        return self._sent

    @property
    def first(self) -> Record | None:
        """The first record that the producer was given."""
        return self._first

    def _act(self, produce: Callable[[], object]) -> None:
        try:
            produce()
            self.transaction.producer.poll(0)
        except (KafkaException, SystemError) as e:
            raise self._error(clients.true_error(e, self.transaction.producer)) from e
        if self._failed is not None:
            self._raise_failure()

    def _produce(self, batch: Sequence[Record]) -> None:
        """Most of the processor time of writing is spent here: hence local names, and no Python call per record."""
        if not batch:
            return
        if self._suspects or self._all_watched:
            for watched in batch:
                self._produce_one(watched, acknowledge=True)
            return
        if self._first is None:
            self._produce_one(batch[0], acknowledge=True)
            batch = batch[1:]
        produce, topic, partition = self.transaction.producer.produce, self.key.target_topic, self.key.target.partition
        self._sent += len(batch)
        record = None
        try:
            for record in batch:
                _, timestamp, key, value, headers = record
                try:
                    # Positional, because keywords make the call 1.5 times as slow.
                    produce(topic, value, key, partition, None, None, timestamp, headers)
                except BufferError:
                    self._wait_for_room(record, acknowledge=False)
        except KafkaException as e:
            self._refuse_by_client(e, record)
            raise

    def _produce_last(self) -> None:
        for record in self._kept_back:
            self._produce_one(record, acknowledge=True)

    def _produce_one(self, record: Record, *, acknowledge: bool) -> None:
        self._sent += 1
        if self._first is None:
            self._first = record
        try:
            self._wait_for_room(record, acknowledge=acknowledge)
        except KafkaException as e:
            self._refuse_by_client(e, record)
            raise

    def _wait_for_room(self, record: Record, *, acknowledge: bool) -> None:
        """Produce one record, waiting for room in the producer's queue."""
        _, timestamp, key, value, headers = record
        producer, topic, partition = self.transaction.producer, self.key.target_topic, self._partition(record)
        callback = partial(self._delivered, record) if acknowledge else None
        produce = partial(producer.produce, topic, value, key, partition, callback, None, timestamp, headers)
        if not self.transaction.takes(produce):
            raise self._too_large(record)

    def _partition(self, record: Record) -> int:  # noqa: ARG002  # all go to one
        """The target partition of this record."""
        return self.key.target.partition

    def _delivered(self, record: Record | None, error: KafkaError | None, message: Message) -> None:
        """``record`` is given if it is watched."""
        if error is not None:
            if record is not None and error.code() in REFUSALS:
                self._refused.append((record, error.code()))
            if self._failed is None or error.code() in REFUSALS:
                self._failed = error
            return
        offset = offset_of(message)
        self._first_offset = offset if self._first_offset == UNKNOWN else min(self._first_offset, offset)
        self._last_offset = max(self._last_offset, offset)

    def _raise_failure(self) -> None:
        """Raise the first failure. Return if the transaction can still be committed."""
        reason = self.transaction.failure() or self._failed
        if reason is not None:
            raise self._error(reason)

    def _error(self, error: KafkaError) -> ReplicationError:
        if error.code() not in REFUSALS:
            return self.transaction.error(error, "sending")
        if self.aside and self.aside.refused:
            return self.aside.refused
        if named := self._named():
            first, *others = [self._refusal(record, code) for record, code in named]
            first.more = tuple(failure for refusal in others for failure in refusal.failures)
            return first
        if self._sent == 1 and self._first is not None:
            return self._refusal(self._first, error.code())
        what = f"{self.key.source}: {self.key.target_topic} refuses one of {self._sent} records"
        return RefusedAt(f"{what}: {REFUSALS[error.code()]}", "", None, self._sent)

    def _named(self) -> list[tuple[Record, int]]:
        """The refused records, if the answers tell them from their neighbours.

        Kafka names the invalid records of a batch if there are several (KIP-467). If there is one, or if the batch is
        refused for another reason, librdkafka 2.16 gives all its records the same error (measured). A record that is
        larger than a batch has one of its own.
        """
        named = [(record, code) for record, code in self._refused if code != KafkaError._INVALID_DIFFERENT_RECORD]
        if len(named) < len(self._refused):
            return named
        alone = len(named) == 1 and (named[0][0][0] in self._suspects or self._all_watched)
        return named if alone else []

    @property
    def _all_watched(self) -> bool:
        return self.aside is not None and self.aside.rules.searching

    def _refuse_by_client(self, error: KafkaException, record: Record | None) -> None:
        """Raise the refusal of one record by the client itself, which names the record at once."""
        if record is not None and error.args[0].code() in REFUSALS:
            raise self._refusal(record, error.args[0].code()) from error

    def _refusal(self, record: Record, code: int) -> RefusedAt:
        (offset, timestamp, key, *_), size, source = record, size_of(record), self.key.source
        limits = ", ".join(
            f"{name}={self.limits[name]}"
            for name in ("max.message.bytes", *_TIMESTAMP_LIMITS)
            if name in self.limits and _is_about(code, name)
        )
        return RefusedAt(
            f"{source}: the target topic {self.key.target_topic} refuses the record at offset {offset} "
            f"(partition {source.partition}, {size} bytes, timestamp {timestamp}): {REFUSALS[code]} ({limits})",
            f"raise the limit on {self.key.target_topic}, or choose what happens to such records (failures.policy),"
            f" then run again: the records before offset {offset} are copied, later ones are not",
            offset,
            kind=_kind(code),
            error=KafkaError(code).name(),
            key=key,
        )

    def _too_large(self, record: Record) -> RefusedAt:
        offset, source = record[0], self.key.source
        return RefusedAt(
            f"{source}: the record at offset {offset} (partition {source.partition}) cannot be copied: it is larger"
            " than the producer's whole queue",
            "raise queue.buffering.max.kbytes in the extra of the target's connection, then run again",
            offset,
            kind=FailureKind.TOO_LARGE,
            error="BufferError",
            key=record[2],
        )

    def _segment(self, digest: str) -> Segment:
        first, last = self._first_offset, self._last_offset
        if UNKNOWN in (first, last):
            error = KafkaError(KafkaError._TIMED_OUT, "the first and last record of a chunk were not acknowledged")
            raise self.transaction.error(error, "sending")
        if last - first + 1 != self._sent:
            # A record in the middle was refused, or another producer writes there. Smaller chunks show which.
            raise RefusedAt(
                f"{self.key.target}: {self._sent} of our records lie at offsets {first} to {last}",
                "stop any other writer: a target belongs to one replication alone",
                None,
                self._sent,
            )
        return Segment(partition=self.key.target.partition, first=first, last=last, count=self._sent, digest=digest)


def _kind(code: int) -> FailureKind:
    return FailureKind.TOO_LARGE if code == KafkaError.MSG_SIZE_TOO_LARGE else FailureKind.REFUSED


def _is_about(code: int, setting: str) -> bool:
    return setting.startswith("message.timestamp") == (code == KafkaError.INVALID_TIMESTAMP)
