"""The common part of producers with and without transactions: sends, waits for acknowledgements, names its errors."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafka_replication.config import Copy
from kafka_replication.kafka.client import clients
from kafka_replication.kafka.client.throttling import Throttling
from kafka_replication.kafka.diagnosis.translate import Asked, translate
from kafka_replication.kafka.metadata import topics
from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.model.errors import ReplicationError, Stalled
from kafka_replication.model.rights import Operation
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.runtime.stall_clock import StallClock

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
                left = len(self.producer)
                was_empty = not left
                if left:
                    self.check_progress(stall, left)
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
                "smaller chunks are tried by themselves; lower copy.chunk_seconds if this stays",
            )
        clients.raise_if_shut_out(self.producer)
        if stall.is_over(left):
            raise Stalled(
                f"{self.what}: the target acknowledged nothing for {self._settings.stall_timeout} s,"
                f" {left} records are not delivered",
                "check the target's brokers; the next run continues after the last commit",
            )
