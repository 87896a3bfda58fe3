"""One run of one replication, and what it works on: its clients, its store, its lease and its time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from kafka_replication.config import Replication
from kafka_replication.connections.environment import Connections
from kafka_replication.kafka import AdminClient, clients, ledger_topics, snapshotter
from kafka_replication.kafka.opening import Opening
from kafka_replication.kafka.session import LedgerSession
from kafka_replication.kafka.transactions import TransactionalWriter
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.planning.plan import Plan, own
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.runtime.deadline import Deadline, patiently
from kafka_replication.watermarks.store import WatermarkStore

T = TypeVar("T")
Check = Callable[[], None]  # raises Busy once the lease is lost


@dataclass(frozen=True, slots=True)
class Request:
    """What a trigger may ask for: some of the topics only, an end in time, and only to look."""

    topics: tuple[str, ...] = ()
    until: datetime | None = None
    dry_run: bool = False


@dataclass
class Run:
    """One run of one replication, with the outside world it works on."""

    replication: Replication
    connections: Connections
    store: WatermarkStore
    run_id: str
    check: Check = field(default=lambda: None)
    deadline: Deadline = field(default_factory=Deadline)

    @cached_property
    def source(self) -> dict[str, Any]:
        name = self.replication.source.connection
        return clients.check_connection(name, self.connections.kafka(name))

    @cached_property
    def target(self) -> dict[str, Any]:
        name = self.replication.target.connection
        return clients.check_connection(name, self.connections.kafka(name))

    @cached_property
    def source_admin(self) -> AdminClient:
        return clients.admin(self.source, self.replication.timeouts.request * 0.6)

    @cached_property
    def target_admin(self) -> AdminClient:
        return clients.admin(self.target, self.replication.timeouts.request * 0.6)

    @cached_property
    def ledger(self) -> ledger_topics.LedgerReader:
        return ledger_topics.LedgerReader(self.target, self.target_admin, self.replication.name, self.deadline)

    def patiently(self, doing: str, call: Callable[[], T]) -> T:
        """Repeat a step's call to a cluster that answered before, within the run's time: brokers are restarted, leaders
        move.
        """
        return patiently(f"{self.replication.name}: {doing}", call, self.deadline, self.replication.copying.attempts)

    def watermarks(self, view: LedgerView) -> dict[PartitionKey, int]:
        """Where the store stands; a watermark of an earlier generation than the ledger's is over: a reset died before
        it moved it.
        """
        positions, found = view.positions, self.store.watermarks(self.replication.name).items()
        return {
            key: each.offset
            for key, each in found
            if key not in positions or each.generation >= positions[key].generation
        }

    def stored_plan(self) -> Plan | None:
        """The plan of an earlier try of this run."""
        known = self.store.run(self.run_id)
        return Plan.decode(known.plan) if known else None

    def view(self) -> LedgerView:
        """What the ledger says; empty where it does not exist yet."""
        return self.ledger.view() if ledger_topics.ensure(self.target_admin, create=False) else LedgerView()

    def snapshot(self, view: LedgerView, request: Request = Request()) -> Snapshot:
        mine = own(self.replication, view).positions
        known, others = {key.source for key in mine}, {key.target_topic for key in view.positions if key not in mine}
        return snapshotter.take(
            self.replication, self.source_admin, self.target_admin, request.topics, request.until, known, others
        )

    def session(self, key: PartitionKey) -> LedgerSession:
        """A life of this partition's own producer, to be closed."""
        return LedgerSession(key, self.source, self.target, self.replication.copying, self.deadline)

    def writer(self, transactional_id: str, what: str) -> TransactionalWriter:
        """A producer of the ledger under this id, to be closed; ``what`` is named in errors."""
        return TransactionalWriter(transactional_id, what, self.target, self.replication.copying, self.deadline)

    def opening(self) -> Opening:
        """To be closed."""
        return Opening(self.replication.name, self.target, self.target_admin, self.replication.copying, self.deadline)
