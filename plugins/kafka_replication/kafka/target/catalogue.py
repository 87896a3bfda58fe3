"""The topics of a target cluster, and the requests that its brokers would refuse."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from confluent_kafka.admin import AdminClient

from kafka_replication.config import Replication
from kafka_replication.kafka.metadata import snapshotter, topics
from kafka_replication.kafka.preflight import dry_run_requests
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import consumer_group
from kafka_replication.model.rights import DenyRule
from kafka_replication.planning.snapshot import Snapshot, Topic
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.targets.port import Catalogue, TargetSettings, ToCreate


class KafkaCatalogue(Catalogue):
    """Of one cluster, for one replication."""

    def __init__(self, settings: TargetSettings, admin: Callable[[], AdminClient], deadline: Deadline) -> None:
        self._settings, self._admin, self._deadline = settings, admin, deadline

    def cluster_id(self) -> str:
        return topics.cluster_id(self._admin())

    def look(self, replication: Replication, wanted: Collection[str], others: Collection[str] = ()) -> Snapshot:
        return snapshotter.take_target(replication, self._admin(), wanted, others)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        return topics.describe_all(self._admin(), names)

    def partitions(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        return {name: state.partitions for name, state in topics.states(self._admin(), names).items()}

    def create(self, topic: ToCreate) -> None:
        topics.create(self._admin(), topic.name, topic.partitions, topic.replication_factor, topic.config)

    def add_partitions(self, name: str, partitions: int) -> None:
        topics.add_partitions(self._admin(), name, partitions)

    def may_read(self, seconds: float) -> bool:
        group = consumer_group(self._settings.replication.name)
        return dry_run_requests.may_describe_group(self._settings.connection, group, seconds)

    def deny_rules(self, seconds: float) -> frozenset[DenyRule] | None:
        return dry_run_requests.deny_rules(self._admin(), "target", seconds)

    def check_writing(self) -> None:
        replication, connection = self._settings.replication, self._settings.connection
        dry_run_requests.check_transactions(connection, replication.name, replication.copying, self._deadline)

    def refusals(self, topics: Iterable[ToCreate], seconds: float) -> dict[str, ReplicationError]:
        return dry_run_requests.refusals(self._admin(), topics, seconds)
