"""One run of one replication: its clusters, store and deadline. `LeasedRun` is a run that has the lease."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, Self, TypeVar

from kafka_replication.config import Replication
from kafka_replication.connections import Connections
from kafka_replication.copying.pipeline import Pipeline, load
from kafka_replication.copying.sink import SinkSession
from kafka_replication.kafka import snapshotter
from kafka_replication.ledger.entries import Transform
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import AttemptsExhausted, Fenced, NotAdmitted, Unreachable
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning import plan_codec
from kafka_replication.planning.live import own, without_source
from kafka_replication.planning.plan import Plan
from kafka_replication.planning.refusals import unresolved
from kafka_replication.planning.snapshot import Snapshot, store_finding, unknown_to_store
from kafka_replication.reporting.progress import Progress
from kafka_replication.runs.clusters import Clusters
from kafka_replication.runs.target_drift import Comparison
from kafka_replication.runtime import deadline as deadlines
from kafka_replication.runtime.deadline import Deadline, backoff, retry
from kafka_replication.store.held_lease import HeldLease
from kafka_replication.targets.start_offsets import StartOffsets

if TYPE_CHECKING:
    from kafka_replication.store import WatermarkStore

log = logging.getLogger(__name__)
T = TypeVar("T")
_said = set[str]()  # the replications of which was said that the store knows less than the ledger
MOST_FENCED: Final = 30  # calls; with the pauses between them about a minute
REQUESTS_AFTER_FAILURE: Final = 10  # of timeouts.request: 5 minutes by default
Show = Callable[[Progress], None]  # called in a thread of its own


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a trigger: only some topics, an end in time, and a dry run."""

    topics: tuple[str, ...] = ()
    until: datetime | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one replication. A run without the lease only reads; steps that write take a `LeasedRun`."""

    replication: Replication
    clusters: Clusters
    store: WatermarkStore
    run_id: str
    deadline: Deadline = field(default_factory=Deadline)
    show: Show | None = None  # shows progress; None: a line in the log every few seconds

    def holding(self, hold: HeldLease) -> LeasedRun:
        """This run with its lease."""
        return LeasedRun(**{attribute.name: getattr(self, attribute.name) for attribute in fields(Run)}, hold=hold)

    def of(self, replication: Replication) -> Self:
        """The same run with other settings of its replication, with the same clients and lease."""
        return replace(self, replication=replication)

    def retry(self, doing: str, call: Callable[[], T], patience: float = math.inf) -> T:
        """Call, and retry until the deadline, or for ``patience`` seconds. For clusters that answered before: brokers
        restart, leaders move. Raises AttemptsExhausted after `deadlines.ATTEMPTS` attempts.
        """
        attempts, named = deadlines.ATTEMPTS, AttemptsExhausted.of
        doing = f"{self.replication.name}: {doing}"
        return retry(doing, call, self.deadline, attempts, patience=patience, exhausted=named)

    @property
    def patience_after_failure(self) -> float:
        """Seconds for the steps after something has failed. A target that was waited for in vain is not waited for
        again for hours: the next run does what is left.
        """
        return REQUESTS_AFTER_FAILURE * self.replication.timeouts.request

    def watermarks(self, view: LedgerView) -> dict[PartitionKey, int]:
        """The stored watermarks. Those of an earlier generation than the ledger's are no longer valid, and left out.

        A warning says once that the store knows less than the ledger, and again if that happens again.
        """
        positions = view.positions
        current = {
            key: watermark.offset
            for key, watermark in self.store.watermarks(self.replication.name).items()
            if key not in positions or watermark.generation >= positions[key].generation
        }
        finding = store_finding(unknown_to_store(view, current), len(positions))
        if finding is None:
            _said.discard(self.replication.name)
        elif self.replication.name not in _said:
            _said.add(self.replication.name)
            finding.log_to(log)
        return current

    def stored_plan(self) -> Plan | None:
        """The plan that an earlier task or attempt of this run stored; None if there is none."""
        stored = self.store.run(self.run_id)
        return plan_codec.decode(stored.plan, self.run_id) if stored and stored.plan else None

    @property
    def planned_with(self) -> dict[str, str]:
        """The settings that a plan of today depends on, as `Plan.settings` has them. Raises BadInput."""
        return {**self.replication.planned_with, "filter and transform": str(self.transform or "")}

    def view(self) -> LedgerView:
        """The entries of the ledger; empty if it does not exist yet."""
        return self.clusters.ledger.view()

    def snapshot(self, view: LedgerView, request: Request = Request()) -> Snapshot:
        """A snapshot of both clusters, for the topics that the replication selects and ``request`` names, compared with
        ``view``.
        """
        own_entries = own(self.replication, view)
        own_positions = own_entries.positions
        snapshot = snapshotter.take(
            self.replication,
            self.clusters.source_admin,
            self.clusters.target.catalogue.look,
            request.topics,
            request.until,
            {key.source for key in own_positions},
            {key.target_topic for key in view.positions if key not in own_positions},
            unresolved(self.replication, own_entries),
        )
        snapshot = replace(snapshot, logins=self.clusters.logins, known=bool(view.positions))
        return self.comparison.compared(view, snapshot)

    def snapshot_to_show(self, view: LedgerView) -> Snapshot:
        """A snapshot to show. If the source cannot be used, its partitions have this `Trouble`."""
        try:
            return self.snapshot(view)
        except (Unreachable, NotAdmitted) as error:
            if not own(self.replication, view).positions:
                raise
            return without_source(self.replication, view, Trouble.of(error))

    @property
    def pipeline(self) -> Pipeline | None:
        """The pipeline that leaves out and changes records. Raises BadInput for a function that cannot be imported
        here.
        """
        return load(self.replication.pipeline)

    @property
    def transform(self) -> Transform | None:
        """The transform that a receipt of today would name. Raises BadInput."""
        pipeline = self.pipeline
        return pipeline.identity if pipeline else None

    def check_pipeline(self) -> None:
        """Raise BadInput for a function that cannot be imported here, before anything is done."""
        load(self.replication.pipeline)

    @property
    def comparison(self) -> Comparison:
        """Compares the target with the ledger."""
        return Comparison(replication=self.replication, clusters=self.clusters, run_id=self.run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedRun(Run):
    """A run with a lease of target topics. Only such a run may write to these topics, and their entries to the ledger
    and the store.
    """

    hold: HeldLease

    def check(self) -> None:
        """Raises Busy if the lease is lost: the work must stop."""
        self.hold.check()

    def holds(self, target_topic: str) -> bool:
        """True if this run may write to the topic; otherwise another run is at work on it."""
        return target_topic in self.hold.lease.topics

    def again_if_fenced(self, doing: str, call: Callable[[], T]) -> T:
        """Call; call again if another producer of the same transactional id fenced this one and this run still has its
        lease.

        Runs with other target topics share the ids for entries of several partitions. Each of their transactions is
        short, and reads the ledger after it has fenced. ``call`` therefore fences, reads and commits. Raises Busy if
        the lease is lost, or Fenced after `MOST_FENCED` calls.
        """
        for failures in range(1, MOST_FENCED):
            try:
                return call()
            except Fenced as fenced:
                self.check()
                self.deadline.check(doing, fenced)
                log.info("%s: %s: another run was faster; again", self.replication.name, doing)
            time.sleep(random.uniform(0.1, 1) * backoff(failures))
        return call()

    @contextmanager
    def fenced(self, key: PartitionKey) -> Iterator[SinkSession]:
        """A session of this partition, for entries of the ledger, that has fenced every earlier one: until another one
        fences it, nobody else moves the partition's position. Raises Busy if the lease is lost, and Fenced.
        """
        self.check()
        with closing(self.clusters.target.session(key)) as session:
            session.fence()
            yield session

    def opening(self) -> StartOffsets:
        """The writer of start offsets. The caller closes it."""
        settings = self.replication
        return StartOffsets(settings.name, self.clusters.target, settings.placing, settings.delivery)


def open_run(
    replication: Replication,
    connections: Connections,
    store: WatermarkStore,
    run_id: str,
    deadline: Deadline | None = None,
    *,
    looks: bool = False,
) -> Run:
    """A run without a lease. Does not connect: clients are created at their first use.

    One that only ``looks`` waits for a transaction that hides the ledger as long as for any answer of a cluster.
    """
    deadline = deadline or Deadline()
    clusters = Clusters(replication, connections, deadline, replication.timeouts.request if looks else None)
    return Run(replication=replication, clusters=clusters, store=store, run_id=run_id, deadline=deadline)
