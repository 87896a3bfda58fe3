"""Transactions that are broken on purpose: the suite must notice each of them."""

from __future__ import annotations

import uuid
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException

from kafka_replication.kafka import clients
from kafka_replication.kafka.producers import AcknowledgedProducer
from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.model.errors import ReplicationError
from kafka_replication.runtime.deadline import NEVER
from tests.conformance import transaction as checks
from tests.conformance.ground import SETTINGS
from tests.conformance.transaction import Check
from tests.support.scenario import Cluster


class Broken(TransactionalProducer):
    """Works like the real one; the subclasses break one thing each."""

    def __init__(self, transactional_id: str, cluster: Cluster) -> None:
        self.config = {"bootstrap.servers": cluster.bootstrap}
        super().__init__(transactional_id, "contract", self.config, SETTINGS, NEVER)


class ForgetsToFence(Broken):
    def fence(self) -> None:
        self.transactional_id += f"/{uuid.uuid4()}"
        super().fence()


class SendsOutside(Broken):
    """Sends records without the transaction."""

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        other = clients.producer(self.config)
        other.produce(topic, key=key, value=value, partition=partition)
        other.flush(30)


class ForgetsToCommit(Broken):
    def commit(self) -> None:
        self.flush()
        self.producer.abort_transaction(10)


class CommitsWhenItIsClosed(Broken):
    def close(self) -> None:
        try:
            self.producer.commit_transaction(10)
        except KafkaException:
            super().close()


class LosesTheLast(Broken):
    """Forgets a record that is sent while another one is on its way."""

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        if not len(self.producer):
            super().send(topic, partition, key, value)


class HidesErrors(Broken):
    """Commits without looking at the answer."""

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        self.producer.produce(topic, key=key, value=value, partition=partition)
        self.producer.flush(10)

    def commit(self) -> None:
        with suppress(KafkaException):
            self.producer.commit_transaction(30)


ALL: list[tuple[type[Broken], Check]] = [
    (ForgetsToFence, checks.a_fenced_session_cannot_commit),
    (SendsOutside, checks.what_is_acknowledged_is_not_visible_before_the_commit),
    (ForgetsToCommit, checks.what_is_committed_is_visible_in_order),
    (CommitsWhenItIsClosed, checks.closing_aborts),
    (LosesTheLast, checks.what_is_committed_is_visible_in_order),
    (HidesErrors, checks.a_fenced_session_cannot_commit),
]


class Unordered(AcknowledgedProducer):
    """Works like the real one; the subclasses break one thing each."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__("at_least_once", "contract", {"bootstrap.servers": cluster.bootstrap}, SETTINGS, NEVER)


class SendsAtOnce(Unordered):
    """Sends what was never committed."""

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        self.producer.produce(topic, value, key, partition)
        self.producer.flush(10)


class SendsAllTogether(Unordered):
    """Does not wait before it sends to the next topic."""

    def commit(self) -> None:
        for topic, partition, key, value in self._entries:
            self.producer.produce(topic, value, key, partition)
        self.flush()


class ForgetsErrors(Unordered):
    def failure(self, of_a_record: KafkaError | None = None) -> KafkaError | None:
        return None

    def commit(self) -> None:
        with suppress(ReplicationError):  # the client itself refuses a partition if it knows the topic's already
            super().commit()


UNORDERED: list[tuple[type[Unordered], Check]] = [
    (SendsAtOnce, checks.closing_aborts),
    (SendsAllTogether, checks.nothing_is_written_after_what_failed),
    (ForgetsErrors, checks.an_error_is_one_of_ours),
]
