"""One run of one replication: its clusters, its store and its time; and the same run while it holds the lease."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import TypeVar

from kafka_replication.config import Replication
from kafka_replication.connections.port import Connections
from kafka_replication.kafka import snapshotter
from kafka_replication.kafka.session import PartitionSession
from kafka_replication.kafka.start_offsets import StartOffsets
from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.planning import plan_codec
from kafka_replication.planning.live import own
from kafka_replication.planning.plan import Plan
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.runs.clusters import Clusters
from kafka_replication.runtime.deadline import Deadline, retry
from kafka_replication.watermarks.store import WatermarkStore

T = TypeVar("T")
Check = Callable[[], None]  # raises Busy once the lease is lost


@dataclass(frozen=True, slots=True)
class Request:
    """What a trigger may ask for: some of the topics only, an end in time, and only to look."""

    topics: tuple[str, ...] = ()
    until: datetime | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one replication. Without its lease a run only reads: steps that write take a `LeasedRun`."""

    replication: Replication
    clusters: Clusters
    store: WatermarkStore
    run_id: str
    deadline: Deadline = field(default_factory=Deadline)

    def holding(self, check: Check) -> LeasedRun:
        """This run while it holds its lease; ``check`` raises Busy once the lease is lost."""
        return LeasedRun(**{each.name: getattr(self, each.name) for each in fields(Run)}, check=check)

    def of(self, replication: Replication) -> Run:
        """The same run with other settings of its replication, on the same clients."""
        return replace(self, replication=replication)

    def retry(self, doing: str, call: Callable[[], T]) -> T:
        """Repeat a call to a cluster that answered before, within the run's time: brokers restart, leaders move."""
        return retry(f"{self.replication.name}: {doing}", call, self.deadline, self.replication.copying.attempts)

    def watermarks(self, view: LedgerView) -> dict[PartitionKey, int]:
        """The stored watermarks. One of an earlier generation than the ledger's is left out: it counts no more."""
        positions = view.positions
        return {
            key: watermark.offset
            for key, watermark in self.store.watermarks(self.replication.name).items()
            if key not in positions or watermark.generation >= positions[key].generation
        }

    def stored_plan(self) -> Plan | None:
        """The plan that an earlier task or attempt of this run stored."""
        known = self.store.run(self.run_id)
        return plan_codec.decode(known.plan, self.run_id) if known and known.plan else None

    def view(self) -> LedgerView:
        """What the ledger says; empty where it does not exist yet."""
        return self.clusters.ledger.view()

    def snapshot(self, view: LedgerView, request: Request = Request()) -> Snapshot:
        """Both clusters now, for the topics that the replication selects and ``request`` asks for."""
        mine = own(self.replication, view).positions
        known, others = {key.source for key in mine}, {key.target_topic for key in view.positions if key not in mine}
        return snapshotter.take(
            self.replication,
            self.clusters.source_admin,
            self.clusters.target_admin,
            request.topics,
            request.until,
            known,
            others,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedRun(Run):
    """A run that holds its replication's lease. Only this may write to the target, the ledger or the store."""

    check: Check

    def of(self, replication: Replication) -> LeasedRun:
        """The same run with other settings of its replication, on the same clients, under the same lease."""
        return replace(self, replication=replication)

    def session(self, key: PartitionKey) -> PartitionSession:
        """A life of this partition's own producer, to be closed."""
        return PartitionSession(key, self.clusters.target, self.replication.copying, self.deadline)

    def writer(self, transactional_id: str, what: str) -> TransactionalProducer:
        """A producer of the ledger under this id, to be closed; ``what`` is named in errors."""
        return TransactionalProducer(
            transactional_id, what, self.clusters.target, self.replication.copying, self.deadline
        )

    def opening(self) -> StartOffsets:
        """To be closed."""
        return StartOffsets(
            self.replication.name,
            self.clusters.ledger,
            self.clusters.target,
            self.clusters.target_admin,
            self.replication.copying,
            self.deadline,
        )


def open_run(
    replication: Replication,
    connections: Connections,
    store: WatermarkStore,
    run_id: str,
    deadline: Deadline | None = None,
) -> Run:
    """A run that holds no lease yet. Connects to nothing: clients are made at their first use."""
    deadline = deadline or Deadline()
    clusters = Clusters(replication, connections, deadline)
    return Run(replication=replication, clusters=clusters, store=store, run_id=run_id, deadline=deadline)
