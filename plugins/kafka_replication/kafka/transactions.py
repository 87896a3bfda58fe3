"""Transactions of a confluent-kafka producer: the `TransactionPort` that Kafka implements."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import KafkaException, Producer

from kafka_replication.config import Copy
from kafka_replication.kafka import clients
from kafka_replication.kafka.sending import SLICE, Sender, StallClock
from kafka_replication.model.errors import Stalled, Unreachable
from kafka_replication.model.rights import Operation
from kafka_replication.runtime import failpoints
from kafka_replication.runtime.deadline import Deadline

INIT_TIMEOUT = 60.0
COMMIT_TIMEOUT = 120.0
_TELL_EVERY = 20  # ms
TO_SEND = 0.8  # of the transaction's time-out; the rest is for the commit. A transaction that outlives it is fenced


def longest_wait(settings: Copy, deadline: Deadline) -> float:
    """Seconds for which our open transaction may hide records on the target: its time-out and the brokers' sweep, but
    not longer than the run's time.
    """
    return deadline.within(settings.transaction_timeout + 60.0)


class Identity(NamedTuple):
    """What brokers know a session's producer by. A later session has another epoch."""

    producer_id: int
    epoch: int


class TransactionalProducer(Sender):
    """A `TransactionPort` over one confluent-kafka producer. Errors name ``what``."""

    _identity: Identity | None = None

    def __init__(
        self,
        transactional_id: str,
        what: str,
        target: clients.ClientConfig,
        settings: Copy,
        deadline: Deadline,
    ) -> None:
        super().__init__(what, target, settings, deadline)
        self.transactional_id = transactional_id
        self._begun = math.inf  # when the open transaction was begun

    def _make(self) -> Producer:
        return clients.producer(
            self.throttling.listening(self._target),
            **self.options,
            **{
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": self._settings.transaction_timeout * 1000,
            },
        )

    def _needs(self) -> dict[str, tuple[Operation, str]]:
        return {"transactional_id": (Operation.WRITE, self.transactional_id)}

    def close(self) -> None:
        """Abort the open transaction, so that no reader has to wait for its time-out."""
        if self._is_made:
            clients.quietly_abort(self.producer)

    def fence(self) -> None:
        """End every earlier producer of this transactional id, and wait for the end of its open transaction."""
        self._connect()
        self._repeat("init_transactions", self.producer.init_transactions, INIT_TIMEOUT)

    def tell_identity(self) -> None:
        """Make `identity` known. Call it before the producer is made."""
        self.options |= {"stats_cb": self._hear, "statistics.interval.ms": _TELL_EVERY}

    def _hear(self, statistics: str) -> None:
        told = json.loads(statistics).get("eos")  # an admin client with the same settings has none
        if told and told["txn_state"] in ("Ready", "InTransaction"):
            self._identity = Identity(told["producer_id"], told["producer_epoch"])

    def identity(self) -> Identity:
        """This session's identity; call it after `fence`. Raises Unreachable.

        The client tells its own, so it can never be that of a session that came later.
        """
        until = time.monotonic() + SLICE
        while self._identity is None:
            if time.monotonic() > until:
                raise Unreachable(f"{self.what}: the client did not tell its producer id", "run again")
            self.producer.poll(0.01)
        return self._identity

    def begin(self) -> None:
        self.guard("begin_transaction", self.producer.begin_transaction)
        self._begun = time.monotonic()

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        """Add one record to the open transaction."""
        self.writes_to(topic)
        self.guard("sending", lambda: self.producer.produce(topic, key=key, value=value, partition=partition))

    @property
    def seconds_left(self) -> float:
        """How long an answer may be waited for: not longer than the target may be silent, and than the open transaction
        may take. At least a moment.
        """
        most = self._begun + TO_SEND * self._settings.transaction_timeout - time.monotonic()
        return max(0.1, min(most, self._settings.stall_timeout))

    def check_progress(self, stall: StallClock, left: int) -> None:
        """As any sender. Raise Stalled, too, if the transaction would outlive its time-out."""
        self.deadline.check(f"{self.what}: sending")
        if time.monotonic() - self._begun > TO_SEND * self._settings.transaction_timeout:
            raise Stalled(
                f"{self.what}: the target is too slow for this chunk: {left} records are not delivered after"
                f" {TO_SEND:.0%} of copy.transaction_timeout ({self._settings.transaction_timeout} s)",
                "smaller chunks are tried by themselves; lower copy.chunk_seconds if this stays",
            )
        super().check_progress(stall, left)

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
