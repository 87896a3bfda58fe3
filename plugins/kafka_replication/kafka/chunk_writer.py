"""Writes one chunk's records with a Kafka producer.

The size of a producer's batches: as large as the target topic allows where the way to the target is long.

An idempotent producer of librdkafka 2.16 has one batch of a partition under way at a time, whatever
``max.in.flight.requests.per.connection`` says (its pull request 4989; measured by ``python -m benchmarks.long_links``).
So a partition carries one batch in a round trip: with 1 MiB and 200 ms, 5 MB/s.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat

from confluent_kafka import KafkaError, KafkaException, Message

from kafka_replication.copying.sink import Record, RefusedAt, Screen, size_of
from kafka_replication.kafka import clients
from kafka_replication.kafka.chunk_places import Ends, Offsets
from kafka_replication.kafka.producers import Sender, SendWindow
from kafka_replication.kafka.quarantine_writer import AsideWriter, larger_than_queue
from kafka_replication.kafka.reading import offset_of
from kafka_replication.ledger.entries import POSITIONS, FailedRecord
from kafka_replication.ledger.placement import Placement
from kafka_replication.model.choices import Failure, FailureKind
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.runtime.deadline import StallClock

REFUSALS = {
    KafkaError.MSG_SIZE_TOO_LARGE: "it is larger than the target topic's max.message.bytes",
    KafkaError.INVALID_TIMESTAMP: "its timestamp is outside the limits of the target topic",
    KafkaError.INVALID_RECORD: "the target's broker calls it invalid (a compacted topic takes no record without a key)",
    KafkaError._INVALID_DIFFERENT_RECORD: "another record of its batch is refused",
    KafkaError._INVALID_ARG: "the client calls it invalid",
}
_TIMESTAMP_LIMITS = tuple(  # the third one is that of brokers before Kafka 3.6
    f"message.timestamp.{limit}" for limit in ("before.max.ms", "after.max.ms", "difference.max.ms", "type")
)


Callback = Callable[[KafkaError | None, Message], None]


@dataclass(slots=True, kw_only=True)
class ChunkWriter:
    """A `RecordWriter`: produces the records of one chunk, and learns where the target stored them.

    The writer keeps the last record back until the next one arrives. So a chunk's first and last record alone can get
    a delivery callback: a callback for every record costs 0.25-0.35 s per million records.
    """

    key: PartitionKey
    sender: Sender
    # These say where the records go, and learn where they lie: of each record if ``each``, else of the first and last.
    places: Ends | Offsets
    window: SendWindow
    limits: Mapping[str, str]  # the target topic's configuration
    aside: AsideWriter | None = None  # None: nothing is set aside
    sent: int = 0  # records that were given to the producer, including the current batch
    first: Record | None = None  # that was given to it
    _kept_back: list[Record] = field(default_factory=list)  # at most one
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
        self.sender.topics.add(self.key.target_topic)
        self.sender.sent = self.sent + len(records)
        batch = [*self._kept_back, *records]
        self._kept_back = batch[-1:]
        self._act(lambda: self._produce(batch[:-1]))
        stall = self.sender.stall_clock()
        self.window.hold_back(batch, lambda: len(self.sender.producer), lambda left: self._wait(stall, left))
        self.places.check(self.sent)

    def _wait(self, stall: StallClock, left: int) -> None:
        """Wait a moment for acknowledgements, while ``left`` records have none."""
        self.sender.check_progress(stall, left)
        self._act(lambda: self.sender.producer.poll(0.05))
        if stall.is_old(1.0):
            self._raise_failure()

    def finish(self, digest: str) -> Placement:
        """Wait until the target acknowledged every record, as far as the profile waits for that. Raises also
        ForeignWriter.
        """
        self.sender.sent = self.sent + len(self._kept_back)
        self._act(lambda: self._produce(self._kept_back, is_last=True))
        if self.sent or self.failures:
            try:
                self.sender.flush()
            except ReplicationError:
                self._raise_failure()  # a refused record, or being fenced, explains why later records did not arrive
                raise
            self._raise_failure()
            if self.aside is not None:
                self.aside.check_acknowledged()
        return self.places.placement(self.sent, digest)

    def _act(self, produce: Callable[[], object]) -> None:
        try:
            produce()
            self.sender.producer.poll(0)
        except (KafkaException, SystemError) as e:
            raise self._error(clients.true_error(e, self.sender.producer)) from e
        if self._failed is not None:
            self._raise_failure()

    def _produce(self, batch: Sequence[Record], *, is_last: bool = False) -> None:
        """Most of the processor time of writing is spent here: hence local names, and no Python call per record."""
        if not batch:
            return
        produce, topic, callbacks = self.sender.producer.produce, self.key.target_topic, self._callbacks(batch, is_last)
        self.sent += len(batch)
        self.first = self.first or batch[0]
        record = None
        try:
            for record, partition, callback in zip(batch, self.places.partitions(batch), callbacks, strict=False):
                _, timestamp, key, value, headers = record
                try:
                    # Positional, because keywords make the call 1.5 times as slow.
                    produce(topic, value, key, partition, callback, None, timestamp, headers)
                except BufferError:  # wait for room in the producer's queue
                    again = partial(produce, topic, value, key, partition, callback, None, timestamp, headers)
                    if not self.sender.takes(again):
                        raise larger_than_queue(self.key.source, record) from None
        except KafkaException as e:
            if record is not None and e.args[0].code() in REFUSALS:  # by the client itself, which names it at once
                raise self._refusal(record, e.args[0].code()) from e
            raise

    def _callbacks(self, batch: Sequence[Record], is_last: bool) -> Iterable[Callback | None]:
        """For each record, who is called when it was acknowledged or refused; None if nobody is."""
        if self._suspects or self._all_watched:
            return (partial(self._delivered, record) for record in batch)
        if self.places.each:
            return repeat(partial(self._delivered, None))
        if self.first is None or is_last:
            return chain((partial(self._delivered, batch[0]),), repeat(None))
        return repeat(None)

    def _delivered(self, record: Record | None, error: KafkaError | None, message: Message) -> None:
        """``record`` is given if it is watched."""
        if error is not None:
            if self.sender.on_delivery is not None:
                self.sender.on_delivery(error, message)
            if record is not None and error.code() in REFUSALS:
                self._refused.append((record, error.code()))
            if self._failed is None or error.code() in REFUSALS:
                self._failed = error
            return
        self.places.acknowledged(message.partition() or 0, offset_of(message))

    def _raise_failure(self) -> None:
        """Raise the first failure. Return if the chunk can still be committed."""
        if (reason := self.sender.failure(self._failed)) is not None:
            raise self._error(reason)

    def _error(self, error: KafkaError) -> ReplicationError:
        if error.code() not in REFUSALS:
            return self.sender.error(error, "sending")
        if self.aside and self.aside.refused:
            return self.aside.refused
        if named := self._named():
            first, *others = [self._refusal(record, code) for record, code in named]
            first.more = tuple(failure for refusal in others for failure in refusal.failures)
            return first
        if self.sent == 1 and self.first is not None:
            return self._refusal(self.first, error.code())
        what = f"{self.key.source}: {self.key.target_topic} refuses one of {self.sent} records"
        return RefusedAt(f"{what}: {REFUSALS[error.code()]}", "", None, self.sent)

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

    def _refusal(self, record: Record, code: int) -> RefusedAt:
        (offset, timestamp, key, *_), size, source = record, size_of(record), self.key.source
        limits = ", ".join(
            f"{name}={self.limits[name]}"
            for name in ("max.message.bytes", *_TIMESTAMP_LIMITS)
            if name in self.limits and name.startswith("message.timestamp") == (code == KafkaError.INVALID_TIMESTAMP)
        )
        return RefusedAt(
            f"{source}: the target topic {self.key.target_topic} refuses the record at offset {offset} "
            f"(partition {source.partition}, {size} bytes, timestamp {timestamp}): {REFUSALS[code]} ({limits})",
            f"raise the limit on {self.key.target_topic}, or choose what happens to such records (failures.policy),"
            f" then run again: the records before offset {offset} are copied, later ones are not",
            offset,
            kind=FailureKind.TOO_LARGE if code == KafkaError.MSG_SIZE_TOO_LARGE else FailureKind.REFUSED,
            error=KafkaError(code).name(),
            key=key,
        )


LEAST, MOST = 1 << 20, 16 << 20
BYTES_PER_SECOND = 64e6  # that a partition should be able to carry
FRAMING = 1024
_round_trips: dict[tuple[int, str], float] = {}


def batch_size(target: clients.ClientConfig, limit: int) -> int:
    """The ``batch.size`` for a topic that takes batches of at most ``limit`` bytes.

    A batch above this limit is refused as a whole, even if its records fit; the client counts its bytes before
    it compresses them.
    """
    most = max(FRAMING, limit - FRAMING)
    if "batch.size" in target:
        return min(most, int(target["batch.size"]))
    if most <= LEAST:
        return min(most, LEAST)
    # So many bytes that one batch in each round trip is fast enough.
    return int(min(most, MOST, max(LEAST, round_trip(target) * BYTES_PER_SECOND)))


def round_trip(config: clients.ClientConfig) -> float:
    """Seconds to a broker and back, measured once in a process; 0 if none answers. Raises Unreachable."""
    name = os.getpid(), str(config["bootstrap.servers"])
    if name not in _round_trips:
        admin = clients.shared_admin(config)
        try:
            seconds = list[float]()
            for _ in range(3):  # the first may have to connect
                started = time.monotonic()
                admin.list_topics(POSITIONS, timeout=10)
                seconds.append(time.monotonic() - started)
        except KafkaException:  # what is asked next reports it
            return 0.0
        _round_trips[name] = min(seconds)
    return _round_trips[name]
