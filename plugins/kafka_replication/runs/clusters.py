"""The connections of one process to both clusters of a replication: settings, admin clients, the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import chain
from typing import Any

from kafka_replication.config import Replication
from kafka_replication.connections import Connections, SparkConnection
from kafka_replication.kafka import AdminClient, clients
from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.ledger.entries import Position
from kafka_replication.ledger.port import Ledger
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import KAFKA, LATEST, Promise
from kafka_replication.model.errors import ConnectionMissing, NotAdmitted, ReplicationError, Unreachable
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.model.rights import Login, Side
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.targets.port import Target, TargetSettings, kind


class Clusters:
    """Creates a client at its first use and keeps it. That use may raise BadInput, ConnectionMissing, NotAdmitted,
    Unreachable.
    """

    def __init__(
        self,
        replication: Replication,
        connections: Connections,
        deadline: Deadline,
        ledger_seconds: float | None = None,
    ) -> None:
        """``ledger_seconds``: as in `TargetSettings`."""
        self._replication, self._connections, self._deadline = replication, connections, deadline
        self._ledger_seconds = ledger_seconds

    @cached_property
    def source(self) -> dict[str, Any]:
        """The source's client settings."""
        connection = self._replication.source.connection
        return clients.check_connection(connection, self._connections.kafka(connection), "source")

    @cached_property
    def target_connection(self) -> dict[str, Any]:
        """The settings of the target's connection, as its kind has checked them."""
        connection, made = self._replication.target.connection, kind(self._replication.target.type)
        of_kafka = made.connection_type == KAFKA
        connections = self._connections
        settings = connections.kafka(connection) if of_kafka else connections.service(connection, made.connection_type)
        return made.checked(connection, settings)

    @property
    def promise(self) -> Promise:
        """The promise of the target. Does not connect."""
        target = self._replication.target
        return LATEST if target.shape == LATEST else kind(target.type).promise

    @cached_property
    def target(self) -> Target:
        """The target. Does not connect, but finds all connections first, as `source_admin` does."""
        self.resolve()
        settings = TargetSettings(
            replication=self._replication, connection=self.target_connection, ledger_seconds=self._ledger_seconds
        )
        return kind(self._replication.target.type)(settings, self._deadline)

    def resolve(self, *, alerts: bool = False) -> None:
        """Find the connections that the replication's file names, before a cluster is asked. Raises BadInput.

        That of alerts is left out unless ``alerts`` says so: a run goes on although nobody can be told of it.
        """
        errors = list[ReplicationError]()
        found: list[Callable[[], object]] = [lambda: self.source, lambda: self.target_connection]
        if alerts:
            found.append(lambda: self.alert_addresses)
        if "connection" in self._replication.spark.model_fields_set:
            found.append(lambda: self.spark)
        for find in found:
            try:
                find()
            except ReplicationError as error:
                errors.append(error)
        raise_together(errors)

    def connect(self) -> None:
        """Connect to both clusters at the same time. Raises the errors of both as one."""
        raise_together(list(self._connected().values()))

    @cached_property
    def away(self) -> Mapping[Side, ReplicationError]:
        """The clusters that do not answer or let nobody in, and why. Connects to both at the same time, once. Raises
        BadInput.
        """
        errors = self._connected()
        if not all(isinstance(error, Unreachable | NotAdmitted) for error in errors.values()):
            raise_together(list(errors.values()))
        return errors

    def away_now(self) -> ReplicationError | None:
        """The error of the clusters that do not answer or let nobody in, asked by new clients: those of a run have
        connected long ago.
        """
        asked = Clusters(self._replication, self._connections, self._deadline, self._ledger_seconds)
        try:
            raise_together(list(asked.away.values()))
        except ReplicationError as error:
            return error
        return None

    def _connected(self) -> dict[Side, ReplicationError]:
        self.resolve()
        with ThreadPoolExecutor(2) as pool:
            both: dict[Side, Future[object]] = {
                "source": pool.submit(lambda: self.source_admin),
                "target": pool.submit(lambda: self.target.connect()),
            }
        errors = dict[Side, ReplicationError]()
        for side, future in both.items():
            try:
                future.result()
            except ReplicationError as error:
                errors[side] = error
        return errors

    @cached_property
    def spark(self) -> SparkConnection:
        return self._connections.spark(self._replication.spark.connection)

    @cached_property
    def alert_addresses(self) -> tuple[str, ...]:
        connection = self._replication.alerts.apprise
        return self._connections.apprise(connection) if connection else ()

    def secret(self, connection_id: str) -> str:
        """The password of a generic connection. Raises ConnectionMissing."""
        password = self._connections.service(connection_id, "generic").get("password")
        if not password:
            raise ConnectionMissing(f"connection {connection_id!r} has no password", "put the secret into its password")
        return str(password)

    @property
    def logins(self) -> Mapping[Side, Login]:
        """The login of a client of each side."""
        return {"source": clients.login(self.source), "target": self.target.login}

    @cached_property
    def source_admin(self) -> AdminClient:
        self.resolve()
        named = next(iter(self._replication.topics.named), None)
        return clients.admin(self.source, self._replication.timeouts.request * clients.CONNECTING, named)

    @property
    def ledger(self) -> Ledger:
        """The ledger. It remembers what it has read: every view after the first reads only new entries."""
        return self.target.ledger

    def positions_on_source(self) -> Mapping[PartitionKey, Position]:
        """The positions of replications that write to the topics of the source that this one selects. Raises
        Unreachable, NotAuthorized, LedgerUnreadable.
        """

        def view(replication: str) -> LedgerView:
            soon = Deadline.after(self._deadline.within(self._replication.timeouts.request))
            return KafkaLedger(self.source, self.source_admin, replication, soon).view()

        own = view(self._replication.name)
        others = {
            owner.replication
            for topic, owners in own.owners.items()
            if self._replication.selects(topic)
            for owner in owners
        }
        return dict(chain(own.positions.items(), *(view(name).positions.items() for name in sorted(others))))


def raise_together(errors: Sequence[ReplicationError]) -> None:
    """Raise these errors as one; nothing if there are none."""
    if errors:
        raise together(errors)


def together(errors: Sequence[ReplicationError]) -> ReplicationError:
    """These errors as one. Its kind is that of the first that no retry can help."""
    worst = min(errors, key=lambda error: error.retriable)
    said = list(dict.fromkeys((error.what, error.remedy) for error in errors))
    return type(worst)("; ".join(what for what, _ in said), "; ".join(dict.fromkeys(remedy for _, remedy in said)))
