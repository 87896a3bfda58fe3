"""Transactions of a confluent-kafka producer: the `TransactionPort` that Kafka implements."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_replication.config import Copy
from kafka_replication.kafka import clients, topics
from kafka_replication.kafka.throttling import Throttling
from kafka_replication.kafka.translate import Asked, translate
from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.model.errors import ReplicationError, Stalled, Unreachable
from kafka_replication.model.rights import Operation
from kafka_replication.runtime import failpoints
from kafka_replication.runtime.deadline import Deadline

T = TypeVar("T")
INIT_TIMEOUT = 60.0
COMMIT_TIMEOUT = 120.0
SLICE = 2.0  # seconds; Python cannot handle a signal during one call
TO_SEND = 0.8  # of the transaction's time-out; the rest is for the commit. A transaction that outlives it is fenced


def longest_wait(settings: Copy, deadline: Deadline) -> float:
    """Seconds for which our open transaction may hide records on the target: its time-out and the brokers' sweep, but
    not longer than the run's time.
    """
    return deadline.within(settings.transaction_timeout + 60.0)


class StallClock:
    """Measures how long a number that should fall has not fallen; it is over after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._least = seconds, math.inf
        self._progress = time.monotonic()

    def is_over(self, left: float) -> bool:
        now = time.monotonic()
        if left < self._least:
            self._least, self._progress = left, now
        return now - self._progress > self._seconds

    def is_old(self, seconds: float) -> bool:
        """Whether the number has not fallen for so many seconds."""
        return time.monotonic() - self._progress > seconds


class TransactionalProducer:
    """A `TransactionPort` over one confluent-kafka producer. Errors name ``what``."""

    def __init__(
        self,
        transactional_id: str,
        what: str,
        target: clients.ClientConfig,
        settings: Copy,
        deadline: Deadline,
    ) -> None:
        self.transactional_id, self.what, self.deadline = transactional_id, what, deadline
        self.options: dict[str, Any] = {}  # further producer settings; read once, when the producer is created
        self._target, self._settings = target, settings
        self.throttling = Throttling(what, "target")
        self._topics = set[str]()  # to which it has written
        self._begun = math.inf  # when the open transaction was begun

    @cached_property
    def producer(self) -> Producer:
        return clients.producer(
            self.throttling.listening(self._target),
            **self.options,
            **{
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": self._settings.transaction_timeout * 1000,
            },
        )

    def close(self) -> None:
        """Abort the open transaction, so that no reader has to wait for its time-out."""
        if "producer" in self.__dict__:
            clients.quietly_abort(self.producer)

    def guard(self, doing: str, call: Callable[[], T]) -> T:
        """Run a producer call. Raises any failure as a ReplicationError."""
        try:
            return call()
        except (KafkaException, SystemError) as e:
            raise self.error(clients.true_error(e, self.producer), doing) from e

    def error(self, error: KafkaError, doing: str) -> ReplicationError:
        """Kafka's error as one of ours."""
        return translate(error, f"{self.what}: {doing}", self._asked(error))

    def _asked(self, error: KafkaError) -> Asked:
        """The rights that this producer needs. Kafka does not say which of several topics it may not write."""
        topic = ""
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            topic = next(iter(topics.not_writable(clients.shared_admin(self._target), self._topics)), "")
        needs = {"topic": (Operation.WRITE, topic)} if topic else {}
        return Asked.of(self.producer, transactional_id=(Operation.WRITE, self.transactional_id), **needs)

    def fence(self) -> None:
        """End every earlier producer of this transactional id, and wait for the end of its open transaction."""
        self._connect()
        self._repeat("init_transactions", self.producer.init_transactions, INIT_TIMEOUT)

    def _connect(self) -> None:
        """Connect to a broker first. A producer that has no connection when it first asks for its id tries again only
        500 ms later (measured).

        Asks twice: the first answer may come over the bootstrap connection, which librdkafka then closes.
        """
        for _ in range(2):
            with suppress(KafkaException):  # init_transactions will report the error
                self.producer.list_topics(POSITIONS, timeout=self.deadline.within(SLICE))
            clients.raise_if_shut_out(self.producer)

    def begin(self) -> None:
        self.guard("begin_transaction", self.producer.begin_transaction)
        self._begun = time.monotonic()

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        """Add one record to the open transaction."""
        self.writes_to(topic)
        self.guard("sending", lambda: self.producer.produce(topic, key=key, value=value, partition=partition))

    def writes_to(self, topic: str) -> None:
        """Remember a topic of the open transaction, for messages."""
        self._topics.add(topic)

    def flush(self) -> None:
        """Wait until the producer's queue is empty. The stall clock restarts whenever records leave the queue."""
        stall = StallClock(self._settings.stall_timeout)
        while left := self.guard("sending", lambda: self.producer.flush(1.0)):
            self.check_failed()
            self.check_progress(stall, left)

    def check_failed(self) -> None:
        """Raise the reason if the open transaction can no longer be committed: the rest would only time out."""
        if (reason := clients.failure(self.producer)) is not None:
            raise self.error(reason, "sending")

    def check_progress(self, stall: StallClock, left: int) -> None:
        """Raise Stalled if ``left`` records wait and none leaves the queue, or if the transaction would outlive its
        time-out. Raise OutOfTime or NoProgress at the deadline.
        """
        self.deadline.check(f"{self.what}: sending")
        clients.raise_if_shut_out(self.producer)
        if time.monotonic() - self._begun > TO_SEND * self._settings.transaction_timeout:
            raise Stalled(
                f"{self.what}: the target is too slow for this chunk: {left} records are not delivered after"
                f" {TO_SEND:.0%} of copy.transaction_timeout ({self._settings.transaction_timeout} s)",
                "smaller chunks are tried by themselves; lower copy.chunk_seconds if this stays",
            )
        if stall.is_over(left):
            raise Stalled(
                f"{self.what}: the target acknowledged nothing for {self._settings.stall_timeout} s,"
                f" {left} records are not delivered",
                "check the target's brokers; the next run continues after the last commit",
            )

    def commit(self) -> None:
        """Commit the transaction. Retriable errors are retried, bounded. Any other error leaves the outcome unknown."""
        self.flush()
        failpoints.reached("P2")
        self._repeat("commit_transaction", self.producer.commit_transaction, COMMIT_TIMEOUT)

    def _repeat(self, doing: str, call: Callable[[float], None], seconds: float) -> None:
        """Call, and repeat the call while the client says that this is allowed; that resumes the operation.

        Raises Unreachable after ``seconds``.
        """
        until = time.monotonic() + self.deadline.within(seconds)
        while True:
            try:
                return call(SLICE)
            except (KafkaException, SystemError) as e:
                if not (isinstance(e, KafkaException) and e.args[0].retriable() and not e.args[0].txn_requires_abort()):
                    raise self.error(clients.true_error(e, self.producer), doing) from e
                clients.raise_if_shut_out(self.producer)
                if time.monotonic() > until:
                    raise Unreachable(
                        f"{self.what}: {doing} was not answered for {seconds:.0f} s: {e.args[0].str()}", "run again"
                    ) from e
                time.sleep(0.05)
