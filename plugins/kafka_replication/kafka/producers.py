"""The common part of producers with and without transactions: sends, waits for acknowledgements, names its errors.

A producer without transactions, for the profiles that have none: `AcknowledgedProducer`.

No broker fences it. Who uses it has the lease, and looks at the ledger again before each entry.

Bounds what waits for the target's acknowledgement to what the target takes in a few seconds.

Without it, a producer's queue holds 64 MiB whatever the target: at 100 kB/s, eleven minutes of records, more than a
transaction may last; and requests that wait longer than ``socket.timeout.ms`` behind others are sent again.
"""

from __future__ import annotations

import itertools
import math
import operator
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafka_replication.config import Copy
from kafka_replication.copying.sink import Record
from kafka_replication.kafka import clients, topics
from kafka_replication.kafka.callbacks import Throttling
from kafka_replication.kafka.connect_diagnosis import Asked, translate
from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.model.choices import Delivery
from kafka_replication.model.errors import ReplicationError, Stalled
from kafka_replication.model.rights import Operation
from kafka_replication.runtime import failpoints
from kafka_replication.runtime.deadline import Deadline, StallClock

T = TypeVar("T")
SLICE = 2.0  # seconds; Python cannot handle a signal during one call
# The part of a transaction's time-out in which all is sent; the rest is for the commit. One that outlives it is fenced.
SENT_WITHIN = 0.8


class Sender(ABC):
    """One confluent-kafka producer of one session. Errors name ``what``."""

    def __init__(
        self,
        what: str,
        target: clients.ClientConfig,
        settings: Copy,
        deadline: Deadline,
        needs: Mapping[str, tuple[Operation, str]],
    ) -> None:
        """``needs`` are the rights that this kind of producer needs beside those on topics."""
        self.what, self.deadline = what, deadline
        self.options: dict[str, Any] = {}  # further producer settings; read once, when the producer is created
        self._target, self._settings, self._needs = target, settings, needs
        self.throttling = Throttling(what, "target")
        self.topics = set[str]()  # to which it writes, for messages
        # Told of each record that was not delivered, where these are counted. None with transactions: when one is
        # fenced, the client calls back with an exception pending, and a Python call in there raises it (seen).
        self.on_delivery: Callable[[KafkaError | None, Message], None] | None = None
        self.sent = 0  # records of the chunk at work, with those that are about to be sent
        self.due = math.inf  # when the open transaction has to be sent, on the monotonic clock

    @cached_property
    @abstractmethod
    def producer(self) -> Producer: ...

    def guard(self, doing: str, call: Callable[[], T]) -> T:
        """Run a producer call. Raises any failure as a ReplicationError."""
        try:
            return call()
        except (KafkaException, SystemError) as e:
            raise self.error(clients.true_error(e, self.producer), doing) from e

    def error(self, error: KafkaError, doing: str) -> ReplicationError:
        """Kafka's error as one of ours, with the rights that this producer needs. Kafka does not say which of several
        topics it may not write.
        """
        topic = ""
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            topic = next(iter(topics.not_writable(clients.shared_admin(self._target), self.topics)), "")
        needs = {"topic": (Operation.WRITE, topic)} if topic else {}
        return translate(error, f"{self.what}: {doing}", Asked.of(self.producer, **needs, **self._needs))

    def _connect(self) -> None:
        """Connect to a broker first. A producer that has no connection when it first asks for its id tries again only
        500 ms later (measured).

        Asks twice: the first answer may come over the bootstrap connection, which librdkafka then closes.
        """
        for _ in range(2):
            with suppress(KafkaException):  # the request that follows will report the error
                self.producer.list_topics(POSITIONS, timeout=self.deadline.within(SLICE))
            clients.raise_if_shut_out(self.producer)

    def flush(self) -> None:
        """Wait until the producer's queue is empty. The stall clock restarts whenever records leave the queue."""
        stall = self.stall_clock()
        while left := self.guard("sending", lambda: self.producer.flush(1.0)):
            self.check_failed()
            self.check_progress(stall, left)

    def takes(self, produce: Callable[[], object]) -> bool:
        """Call ``produce``, and call it again while the producer's queue is full. False if an empty queue is too small.

        Raises what `check_progress` raises.
        """
        stall, was_empty = self.stall_clock(), False
        while True:
            try:
                produce()
                return True
            except BufferError:
                if was_empty:
                    return False
                waiting = len(self.producer)
                was_empty = not waiting
                if waiting:
                    self.check_progress(stall, waiting)
                    self.producer.poll(0.05)

    def stall_clock(self) -> StallClock:
        """A clock that is over when the target has acknowledged nothing for ``copy.stall_timeout``."""
        return StallClock(self._settings.stall_timeout)

    def check_failed(self) -> None:
        """Raise the reason if what was sent can no longer be committed: the rest would only time out."""
        if (reason := self.failure()) is not None:
            raise self.error(reason, "sending")

    @abstractmethod
    def failure(self, of_a_record: KafkaError | None = None) -> KafkaError | None:
        """The reason why the sent records can no longer be committed, or None. A record may have failed by itself."""

    def check_progress(self, stall: StallClock, left: int) -> None:
        """Raise Stalled if ``left`` records wait and none leaves the queue, or if the transaction would outlive its
        time-out. Raise OutOfTime or NoProgress at the deadline.
        """
        self.deadline.check(f"{self.what}: sending")
        if time.monotonic() > self.due:
            raise Stalled(
                f"{self.what}: the target is too slow for this chunk: {left} records are not delivered after"
                f" {SENT_WITHIN:.0%} of copy.transaction_timeout ({self._settings.transaction_timeout} s)",
                "smaller chunks are tried by themselves; lower copy.chunk_records if this stays",
            )
        clients.raise_if_shut_out(self.producer)
        if stall.is_over(left):
            raise Stalled(
                f"{self.what}: the target acknowledged nothing for {self._settings.stall_timeout} s,"
                f" {left} records are not delivered",
                "check the target's brokers; the next run continues after the last commit",
            )


class AcknowledgedProducer(Sender):
    """Sends records with the acknowledgement of a profile. Also a `TransactionPort`, whose guarantee is ``ordered``.

    Entries are kept until `commit`, which sends them in their order: those of one topic together, and those of the next
    topic when all before are acknowledged. A crash can leave the first of them written.
    """

    def __init__(
        self,
        delivery: Delivery,
        what: str,
        target: clients.ClientConfig,
        settings: Copy,
        deadline: Deadline,
    ) -> None:
        needs = {"cluster": (Operation.IDEMPOTENT_WRITE, "")}
        super().__init__(what, target, settings, deadline, needs)
        self.undelivered = 0  # records that the client knows to be lost; only without acknowledgements it goes on then
        self.on_delivery = self.not_delivered
        self._delivery: Delivery = delivery
        self._failed: KafkaError | None = None
        self._entries: list[tuple[str, int, bytes, bytes | None]] = []

    @cached_property
    def producer(self) -> Producer:
        acknowledgement: dict[str, Any]
        match self._delivery:  # 0 is no limit for the time of a record: the stall clock ends the wait
            case "leader_ack":  # one request at a time, or a repeated one would change the order
                acknowledgement = {
                    "acks": 1,
                    "enable.idempotence": False,
                    "max.in.flight.requests.per.connection": 1,
                    "message.timeout.ms": 0,
                }
            case "fire_and_forget":
                acknowledgement = {
                    "acks": 0,
                    "enable.idempotence": False,
                    "message.send.max.retries": 0,
                    "message.timeout.ms": self._settings.stall_timeout * 1000,
                }
            case _:
                acknowledgement = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": 0}
        # A callback for every record would cost 0.3 s per million.
        ours = {**acknowledgement, "delivery.report.only.error": True, "on_delivery": self.not_delivered}
        return clients.acknowledged_producer(self.throttling.listening(self._target), **self.options, **ours)

    def not_delivered(self, error: KafkaError | None, _: Message) -> None:
        """The client's callback, also for a record that had one of its own."""
        if error is None or error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            return
        self.undelivered += 1
        self._failed = self._failed or error

    def failure(self, of_a_record: KafkaError | None = None) -> KafkaError | None:
        """The first error. Without acknowledgements it counts only if no record was delivered at all."""
        if self._delivery == "fire_and_forget" and self.undelivered < self.sent:
            return None
        return self._failed or of_a_record

    def begin_chunk(self) -> None:
        """The records of a new chunk follow."""
        self.sent, self.undelivered, self._failed = 0, 0, None

    def fence(self) -> None:
        """Connect. Nothing can be fenced: the lease says that nobody else is at work."""
        self._connect()

    def begin(self) -> None:
        self._entries.clear()

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        self.topics.add(topic)
        self._entries.append((topic, partition, key, value))

    def _drain(self) -> None:
        """Wait until everything that was produced is acknowledged, as far as the profile waits for that."""
        self.flush()
        self.check_failed()

    def commit(self) -> None:
        self._drain()
        for topic, entries in itertools.groupby(self._entries, operator.itemgetter(0)):
            failpoints.reached("P2")
            for _, partition, key, value in entries:
                self._produce(topic, partition, key, value)
            self._drain()
        self._entries.clear()

    def _produce(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        while True:
            try:
                self.guard("sending", lambda: self.producer.produce(topic, value, key, partition))
                return
            except BufferError:  # the queue is full
                self._drain()

    def close(self) -> None:
        """Give up what was not sent yet. What was sent may still arrive."""
        self._entries.clear()
        if clients.made(self, "producer") is not None:
            self.producer.purge()


FIRST = 128 << 10  # bytes that may wait before the target has acknowledged anything
SAMPLE = 32  # records of a batch from which the size of all is estimated


class SendWindow:
    """Holds a producer back that is too far ahead of the target. It belongs to one session.

    The first acknowledgements show how fast the target is; a fast one is not measured again, as nothing ever waits.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._now = seconds, now
        self._most = float(FIRST)  # bytes

    @property
    def most(self) -> int:
        """The bytes that may wait, as far as the target was measured."""
        return int(self._most)

    def seen(self, size: int, seconds: float) -> None:
        """So many bytes were acknowledged so long after they were sent. The window grows in steps, as the first bytes
        of a slow way may be fast, and shrinks where it makes somebody wait: a small batch says little of the way.
        """
        self._most = max(self._most, min(size / max(1e-6, seconds) * self._seconds, 2 * self._most))

    def hold_back(self, batch: Sequence[Record], waiting: Callable[[], int], wait: Callable[[int], None]) -> None:
        """Call ``wait`` until at most half of the window waits, if more than the window does after this batch.

        ``waiting`` is the number of records that are not acknowledged; ``wait`` gets it, and may raise.
        """
        if batch:
            self.drain(max(1.0, mean_size(batch)), waiting, wait)

    def drain(self, size: float, waiting: Callable[[], int], wait: Callable[[int], None]) -> None:
        """The same for what has this ``size`` in bytes, of which ``waiting`` is the number."""
        unacknowledged = before = waiting()
        if unacknowledged * size <= self._most:
            return
        started = self._now()
        while unacknowledged * size > self._most / 2:
            wait(unacknowledged)
            unacknowledged = waiting()
        elapsed = max(1e-6, self._now() - started)
        self._most = max(FIRST, (before - unacknowledged) * size / elapsed * self._seconds)


def mean_size(batch: Sequence[Record]) -> float:
    """The mean size in bytes of keys and values, from some of the records."""
    sample = batch[:: max(1, len(batch) // SAMPLE)]
    return sum(len(key or b"") + len(value or b"") for _, _, key, value, _ in sample) / len(sample)
