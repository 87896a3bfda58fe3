"""A producer without transactions, for the profiles that have none: `AcknowledgedProducer`.

No broker fences it. Who uses it has the lease, and looks at the ledger again before each entry.
"""

from __future__ import annotations

import itertools
import operator
from functools import cached_property
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from kafka_replication.config import Copy
from kafka_replication.kafka.client import clients
from kafka_replication.kafka.write.producers.producer_base import Sender
from kafka_replication.model.delivery import Delivery
from kafka_replication.model.rights import Operation
from kafka_replication.runtime import failpoints
from kafka_replication.runtime.deadline import Deadline


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
