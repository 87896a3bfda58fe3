"""Watches a replication from outside its runs: looks at store, clusters and schedule, and tells what is wrong.

Airflow's DAG ``replications.watch``, the command ``watch``, and a run that has just ended look in the same way. What is
open is remembered in the store, so that they tell a cause once together.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from kafka_replication.alerting import channels
from kafka_replication.alerting.channels import AppriseChannel, Channel
from kafka_replication.alerting.decide import decide
from kafka_replication.alerting.memory import AlertMemory, FileMemory
from kafka_replication.alerting.text import Message, message
from kafka_replication.alerting.values import Alert, Cause, CauseKey, Decision, Kind, Observation, OpenCause
from kafka_replication.config import Replication
from kafka_replication.connections.port import Connections
from kafka_replication.model.errors import OutOfTime, ReplicationError, Stalled, Unreachable
from kafka_replication.reporting.causes import (
    Life,
    Planning,
    RunFacts,
    RunsSeen,
    lasting,
    partition_causes,
    run_causes,
)
from kafka_replication.runs.run import open_run
from kafka_replication.runs.standing import standing
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.watermarks.store import WatermarkStore
from kafka_replication.watermarks.values import Lease, RangeOutcome, RunRecord

log = logging.getLogger(__name__)
RUNS = 20  # the latest runs that are looked at
_OF_CLUSTERS = frozenset({Kind.CLUSTER, Kind.GAP, Kind.REFUSED, Kind.LAG})
_OF_RUNS = frozenset({Kind.STALLED, Kind.DIED, Kind.FAILED, Kind.MISSED})


class Orchestrator(Protocol):
    """What knows of runs from outside the store: Airflow."""

    def state(self, run_id: str) -> str | None:
        """``queued``, ``running``, ``success`` or ``failed``; None if it does not know this run."""

    def paused(self) -> bool:
        """Whether the replication's schedule is switched off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Looks at one replication. ``more`` are channels beside the replication's Apprise connection."""

    replication: Replication
    connections: Connections
    open_store: Callable[[], WatermarkStore]
    orchestrator: Orchestrator | None = None
    more: Sequence[Channel] = ()
    fallback: AlertMemory = field(default_factory=FileMemory)

    def look(self, reported: Cause | None = None) -> Decision:
        """Look once, tell what has to be told, and return what was found.

        ``reported`` is what a run that failed says itself.
        Takes at most about four times ``timeouts.request``. Raises BadInput if neither the store nor a file can
        remember what was told.
        """
        name = self.replication.name
        try:
            with closing(self.open_store()) as store:
                decision = self._settle(store, self._observe(store, reported))
                self._tell(store, decision)
                healed = self._store_answers()
                return Decision(open=decision.open, alerts=(*decision.alerts, *healed))
        except ReplicationError as problem:
            log.warning("%s: the store cannot be used: %s", name, problem)
            return self._tell_without_store(problem)

    def _observe(self, store: WatermarkStore, reported: Cause | None) -> _Seen:
        now = datetime.now(UTC)
        seen = self._runs(store)
        causes = [*run_causes(self.replication, seen, now)]
        if reported is not None and not any(cause.run_id == reported.run_id for cause in causes):
            causes.append(reported)
        try:
            deadline = Deadline.after(2 * self.replication.timeouts.request)
            run = open_run(self.replication, self.connections, store, f"watch-{self.replication.name}", deadline)
            causes += partition_causes(self.replication, standing(run))
            judged = _OF_CLUSTERS
        except ReplicationError as problem:
            of_clusters, judged = _problem_of_clusters(self.replication, problem)
            causes += of_clusters
        return _Seen(Observation(causes=tuple(causes), judged=judged | _OF_RUNS), seen.runs)

    def _runs(self, store: WatermarkStore) -> RunsSeen:
        lease, records = store.lease_of(self.replication.name), store.runs(self.replication.name, RUNS)
        facts = [self._facts(store, record, lease) for record in records]
        known = {record.run_id for record in records}
        planning = None
        if lease is not None and lease.owner not in known:
            planning = Planning(run_id=lease.owner, since=lease.acquired_at)
        return RunsSeen(
            runs=tuple(run for run in facts if run is not None),
            planning=planning,
            paused=self.orchestrator is not None and self.orchestrator.paused(),
        )

    def _facts(self, store: WatermarkStore, record: RunRecord, lease: Lease | None) -> RunFacts | None:
        said = None
        if record.state == "planned":
            said = self.orchestrator.state(record.run_id) if self.orchestrator else None
            if said == "success":  # a person has decided so
                return None
        life, why = life_of(record, lease, said)
        failed: tuple[RangeOutcome, ...] = ()
        if life is not Life.AT_WORK and record.state not in ("done", "nothing_to_do"):
            failed = tuple(outcome for outcome in store.outcomes(record.run_id) if outcome.error)
        return RunFacts(record=record, life=life, moved_at=_moved_at(record), failed=failed, why=why)

    def _settle(self, memory: AlertMemory, seen: _Seen) -> Decision:
        def settle(open_: Sequence[OpenCause], now: datetime) -> Decision:
            return decide(open_, lasting(seen.observed, open_, seen.runs), now)

        return memory.settle_causes(self.replication.name, settle)

    def _tell(self, memory: AlertMemory, decision: Decision) -> None:
        if not decision.alerts:
            return
        ways = self._channels()
        if channels.deliver(ways, message(self.replication.name, decision.alerts)):
            memory.confirm_alerts(self.replication.name, decision.alerts)

    def _channels(self) -> Sequence[Channel]:
        connection = self.replication.alerts.apprise
        if connection is None:
            return self.more
        try:
            return (*self.more, AppriseChannel(connection, self.connections.apprise(connection)))
        except ReplicationError as problem:
            return (*self.more, _Broken(f"apprise connection {connection!r}", problem))

    def _tell_without_store(self, problem: ReplicationError) -> Decision:
        cause = Cause(
            key=CauseKey(Kind.STORE),
            what=f"{problem.what}. Runs cannot start or move watermarks; nothing else can be watched",
            remedy=problem.remedy,
            patience=self.replication.alerts.stalled_after if problem.retriable else 0,
        )
        decision = self._settle(self.fallback, _Seen(Observation(causes=(cause,), judged=frozenset({Kind.STORE})), ()))
        self._tell(self.fallback, decision)
        return decision

    def _store_answers(self) -> tuple[Alert, ...]:
        """What the file remembers of a store that was away is over."""
        if not self.fallback.open_causes(self.replication.name):
            return ()
        decision = self._settle(self.fallback, _Seen(Observation(), ()))
        self._tell(self.fallback, decision)
        return decision.alerts


@dataclass(frozen=True, slots=True)
class _Seen:
    observed: Observation
    runs: Sequence[RunFacts]


@dataclass(frozen=True, slots=True)
class _Broken:
    """A channel that cannot be used."""

    name: str
    problem: ReplicationError

    def deliver(self, message: Message) -> None:  # noqa: ARG002 - as every channel
        raise self.problem


def life_of(record: RunRecord, lease: Lease | None, said: str | None) -> tuple[Life, str]:
    """Whether the run is at work, and how it ended if that is known. ``said`` is the state that Airflow names."""
    if record.state in ("done", "nothing_to_do", "failed"):
        return Life.ENDED, ""
    if record.state != "planned":
        return Life.GONE, ""
    if said == "failed":
        return Life.GONE, "it was marked as failed, or its task was killed; Airflow shows the DAG run as failed"
    if said is not None or (lease is not None and lease.owner == record.run_id):
        return Life.AT_WORK, ""
    if record.run_id.startswith("airflow-"):
        return Life.UNKNOWN, "its lease has expired; Airflow shows what became of it"
    return Life.GONE, "its process is gone, and its lease has expired"


def _moved_at(record: RunRecord) -> datetime:
    """When something of the run was last committed or verified; else when it was planned."""
    try:
        document = json.loads(record.progress or "{}")
        return datetime.fromisoformat(document.get("moved") or document["at"])
    except (ValueError, KeyError, TypeError):
        return record.created_at


def _problem_of_clusters(replication: Replication, problem: ReplicationError) -> tuple[list[Cause], frozenset[Kind]]:
    """The cause, and the kinds that can be judged although the clusters could not be read."""
    if isinstance(problem, Stalled):  # a transaction is open in the ledger: the cluster answers
        return [], frozenset({Kind.CLUSTER})
    if isinstance(problem, (Unreachable, OutOfTime)):
        away = Cause(
            key=CauseKey(Kind.CLUSTER),
            what=problem.what,
            remedy=problem.remedy,
            patience=replication.alerts.stalled_after,
        )
        return [away], frozenset({Kind.CLUSTER})
    wrong = Cause(key=CauseKey(Kind.REFUSED), what=problem.what, remedy=problem.remedy)
    return [wrong], frozenset({Kind.CLUSTER, Kind.REFUSED})


def reported_failure(problem: BaseException | str, run_id: str) -> Cause:
    """What a run that failed says itself, for `Watcher.look`."""
    error = problem if isinstance(problem, ReplicationError) else None
    return Cause(
        key=CauseKey(Kind.FAILED),
        what=f"run {run_id} failed: {error.what if error else problem}",
        remedy=(error.remedy if error else "") or "look at its log, then run again: only what is left is repeated",
        at=datetime.now(UTC),
        run_id=run_id,
    )
