"""One life of a transactional producer: from fencing its predecessors to the first doubt."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_replication.config import Copy
from kafka_replication.kafka import clients
from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.model.errors import Unreachable
from kafka_replication.runtime import failpoints
from kafka_replication.runtime.deadline import Deadline

T = TypeVar("T")
INIT_TIMEOUT = 60.0
COMMIT_TIMEOUT = 120.0
SLICE = 2.0  # seconds that one call may keep Python from hearing a signal


def longest_wait(settings: Copy, deadline: Deadline) -> float:
    """Seconds that a transaction of ours may hide what is on the target: its time-out and the brokers' sweep, within
    the run's time.
    """
    return deadline.within(settings.transaction_timeout + 60.0)


class TransactionalWriter:
    """A producer with the stable ``transactional_id``; after any error only `close` may be called.

    ``what`` is named in errors.
    """

    def __init__(
        self,
        transactional_id: str,
        what: str,
        target: clients.ClientConfig,
        settings: Copy,
        deadline: Deadline,
        **producer: Any,
    ) -> None:
        self.transactional_id, self.what, self.target, self.settings, self.deadline = (
            transactional_id,
            what,
            target,
            settings,
            deadline,
        )
        self._more = producer

    @cached_property
    def producer(self) -> Producer:
        return clients.producer(
            self.target,
            **self._more,
            **{
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": self.settings.transaction_timeout * 1000,
            },
        )

    def close(self) -> None:
        """Abort whatever is open, so that nobody has to wait for its time-out."""
        if "producer" in self.__dict__:
            clients.quietly_abort(self.producer)

    def guard(self, doing: str, call: Callable[[], T]) -> T:
        """Run a producer call; any failure leaves as one of our errors."""
        try:
            return call()
        except (KafkaException, SystemError) as e:
            raise clients.translate(clients.true_error(e, self.producer), f"{self.what}: {doing}") from e

    def fence(self) -> None:
        """End whoever uses this transactional id, and settle its open transaction."""
        self._connect()
        self._repeat("init_transactions", self.producer.init_transactions, INIT_TIMEOUT)

    def _connect(self) -> None:
        """Have a broker first: a producer that finds none when it first asks for its id asks again only 500 ms later
        (measured).

        Asked twice, as the first answer may come through the bootstrap address, whose connection is closed then.
        """
        with suppress(KafkaException):  # whatever is wrong is named by what comes next
            for _ in range(2):
                self.producer.list_topics(POSITIONS, timeout=self.deadline.within(SLICE))

    def begin(self) -> None:
        self.guard("begin_transaction", self.producer.begin_transaction)

    def write(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """Send one ledger entry as part of the open transaction."""
        self.guard(
            "writing the ledger", lambda: self.producer.produce(topic, key=key, value=value, partition=partition)
        )

    def flush(self) -> None:
        deadline = time.monotonic() + self.deadline.within(self.settings.stall_timeout)
        while self.guard("sending", lambda: self.producer.flush(1.0)):
            reason = clients.failure(self.producer)
            if reason is not None:  # what is left would only be sent to time out
                raise clients.translate(reason, f"{self.what}: sending")
            if time.monotonic() > deadline:
                raise clients.translate(
                    KafkaError(KafkaError._TIMED_OUT, "records not delivered"), f"{self.what}: sending"
                )

    def commit_transaction(self) -> None:
        """Commit; retriable answers are asked again, bounded. Any error leaves the outcome unknown."""
        self.flush()
        failpoints.reached("P2")
        self._repeat("commit_transaction", self.producer.commit_transaction, COMMIT_TIMEOUT)

    def _repeat(self, doing: str, call: Callable[[float], None], seconds: float) -> None:
        """Call again while the client says that the same call may be repeated, which resumes it.

        Raises Unreachable in the end.
        """
        until = time.monotonic() + self.deadline.within(seconds)
        while True:
            try:
                return call(SLICE)
            except (KafkaException, SystemError) as e:
                if not (isinstance(e, KafkaException) and e.args[0].retriable() and not e.args[0].txn_requires_abort()):
                    raise clients.translate(clients.true_error(e, self.producer), f"{self.what}: {doing}") from e
                if time.monotonic() > until:
                    raise Unreachable(
                        f"{self.what}: {doing} was not answered for {seconds:.0f} s: {e.args[0].str()}", "run again"
                    ) from e
                time.sleep(0.05)
