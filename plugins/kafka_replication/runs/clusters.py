"""The connections of one process to both clusters of a replication: settings, admin clients, the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

from kafka_replication.config import Replication
from kafka_replication.connections.port import Connections
from kafka_replication.kafka import AdminClient, clients
from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.ledger.port import Ledger
from kafka_replication.model.rights import Side
from kafka_replication.runtime.deadline import Deadline


class Clusters:
    """Creates a client at its first use and keeps it. That use may raise BadInput, ConnectionMissing, NotAdmitted,
    Unreachable.
    """

    def __init__(self, replication: Replication, connections: Connections, deadline: Deadline) -> None:
        self._replication, self._connections, self._deadline = replication, connections, deadline

    @cached_property
    def source(self) -> dict[str, Any]:
        """The source's client settings."""
        return self._settings(self._replication.source.connection, "source")

    @cached_property
    def target(self) -> dict[str, Any]:
        """The target's client settings."""
        return self._settings(self._replication.target.connection, "target")

    def _settings(self, connection: str, side: Side) -> dict[str, Any]:
        return clients.check_connection(connection, self._connections.kafka(connection), side)

    @cached_property
    def source_admin(self) -> AdminClient:
        return clients.admin(self.source, self._replication.timeouts.request * 0.6)

    @cached_property
    def target_admin(self) -> AdminClient:
        return clients.admin(self.target, self._replication.timeouts.request * 0.6)

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger. It remembers what it has read: every view after the first reads only new entries."""
        return self._ledger

    @cached_property
    def _ledger(self) -> KafkaLedger:
        return KafkaLedger(self.target, self.target_admin, self._replication.name, self._deadline)

    def ledger_follower(self) -> Callable[[], AbstractContextManager[Ledger]]:
        """Opens a reader of the ledger for another thread, with clients of its own; see `KafkaLedger.follower`."""
        follow, settings, seconds = self._ledger.follower(), self.target, self._replication.timeouts.request * 0.6

        @contextmanager
        def opened() -> Iterator[Ledger]:
            with clients.admin(settings, seconds) as admin:
                yield follow(admin)

        return opened
