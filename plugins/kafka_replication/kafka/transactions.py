"""Transactions of a confluent-kafka producer: the `TransactionPort` that Kafka implements.

Ends the transactions that dead sessions, and sessions that were given up, have left open: several at a time.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import cached_property

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafka_replication.config import Copy
from kafka_replication.kafka import clients
from kafka_replication.kafka.producers import SENT_WITHIN, SLICE, Sender
from kafka_replication.model.errors import Busy, OutOfTime, ReplicationError, Unreachable
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.rights import Operation
from kafka_replication.runtime import background, failpoints
from kafka_replication.runtime.deadline import Deadline

log = logging.getLogger(__name__)

INIT_TIMEOUT = 60.0
COMMIT_TIMEOUT = 120.0


def longest_wait(settings: Copy, deadline: Deadline) -> float:
    """Seconds for which our open transaction may hide records on the target: its time-out and the brokers' sweep, but
    not longer than the run's time.
    """
    return deadline.within(settings.transaction_timeout + 60.0)


class TransactionalProducer(Sender):
    """A `TransactionPort` over one confluent-kafka producer. Errors name ``what``."""

    def __init__(
        self,
        transactional_id: str,
        what: str,
        target: clients.ClientConfig,
        settings: Copy,
        deadline: Deadline,
    ) -> None:
        needs = {"transactional_id": (Operation.WRITE, transactional_id)}
        super().__init__(what, target, settings, deadline, needs)
        self.transactional_id = transactional_id
        self._stored = deque[tuple[TopicPartition, int]](maxlen=1)  # where the last acknowledged entry lies
        self.stored_in = dict[str, int]()  # by topic, the offset of the entry that was acknowledged last

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
        if clients.made(self, "producer") is not None:
            with suppress(KafkaException, SystemError):  # there may be none
                self.producer.abort_transaction(10.0)

    def fence(self) -> None:
        """End every earlier producer of this transactional id, and wait for the end of its open transaction."""
        self._connect()
        self._repeat("init_transactions", self.producer.init_transactions, INIT_TIMEOUT)

    def commit_alone(self, write: Callable[[], None]) -> tuple[TopicPartition, int]:
        """Commit the entries that ``write`` sends, in a transaction of their own. Return where one of them lies.

        Brokers take it only while no later session has fenced this one, and store it under this session's identity.
        Raises Unreachable, Fenced.
        """
        self._stored.clear()
        self.begin()
        write()
        self.flush()
        self._repeat("commit_transaction", self.producer.commit_transaction, COMMIT_TIMEOUT)
        return self.stored()

    def stored(self) -> tuple[TopicPartition, int]:
        """The place of the ledger entry of this session that was acknowledged last. Raises Unreachable."""
        if not self._stored:
            raise Unreachable(f"{self.what}: the target did not tell where it stored a ledger entry", "run again")
        return self._stored[-1]

    def _acknowledged(self, error: KafkaError | None, message: Message) -> None:
        """The client's callback for a ledger entry."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error is None and topic is not None and partition is not None and offset is not None and offset >= 0:
            self._stored.append((TopicPartition(topic, partition), offset))
            self.stored_in[topic] = offset

    def begin(self) -> None:
        self.guard("begin_transaction", self.producer.begin_transaction)
        self.due = time.monotonic() + SENT_WITHIN * self._settings.transaction_timeout

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        """Add one record to the open transaction."""
        self.topics.add(topic)
        self.guard(
            "sending",
            lambda: self.producer.produce(
                topic, key=key, value=value, partition=partition, on_delivery=self._acknowledged
            ),
        )

    def failure(self, of_a_record: KafkaError | None = None) -> KafkaError | None:
        return clients.failure(self.producer) or of_a_record

    @property
    def seconds_left(self) -> float:
        """The longest wait for an answer, in seconds: not longer than the target may be silent, and than the open
        transaction may take. At least a moment.
        """
        return max(0.1, min(self.due - time.monotonic(), self._settings.stall_timeout))

    def commit(self) -> None:
        """Commit the transaction. Retriable errors are retried, bounded. Any other error leaves the outcome unknown."""
        self.flush()
        failpoints.reached("P2", self.what)
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


Make = Callable[[str, str], TransactionalProducer]  # of a transactional id, and of what messages call it


def fence_each(ids: Mapping[str, str], make: Make, check: Callable[[], None] = lambda: None) -> None:
    """Fence the producers with these transactional ids, which ends their open transactions. ``ids`` says what messages
    call each. A producer that cannot be fenced is only logged: the next session of its id fences it again, or fails.

    ``check`` is called before each; what it raises ends all, and so do Busy and OutOfTime.
    """

    def work(one: tuple[str, str]) -> None:
        check()
        transactional_id, what = one
        try:
            with closing(make(transactional_id, what)) as producer:
                producer.fence()
        except (Busy, OutOfTime):
            raise
        except ReplicationError as error:
            log.warning("%s: its producer was not fenced, so its transaction may stay open: %s", what, error)

    background.at_once(ids.items(), work, "fence")
