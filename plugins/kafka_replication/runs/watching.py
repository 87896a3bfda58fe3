"""Watches a replication from outside its runs: looks at store, clusters and schedule, and alerts.

Airflow's DAG ``replications.watch``, the command ``watch``, and a run that has just ended look in the same way. The
store remembers the open causes, so that each cause is announced once, whoever finds it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kafka_replication.alerting import open_causes, telling
from kafka_replication.alerting.open_causes import (
    Alert,
    Cause,
    CauseKey,
    Decision,
    Kind,
    Observation,
    OpenCause,
    decide,
)
from kafka_replication.alerting.telling import AppriseChannel, Channel, Links, LogChannel, message
from kafka_replication.config import Replication
from kafka_replication.connections import Connections
from kafka_replication.model.errors import NotAdmitted, ReplicationError, Stalled, Unreachable
from kafka_replication.overview.rows import facts_of
from kafka_replication.reporting.causes import (
    BACKFILL,
    Life,
    Planning,
    RunFacts,
    RunsSeen,
    failures,
    is_first_copy,
    lasting,
    ledger_causes,
    partition_causes,
    run_causes,
)
from kafka_replication.reporting.drill import drill_causes
from kafka_replication.reporting.status import PartitionStatus
from kafka_replication.runs.clusters import raise_together
from kafka_replication.runs.look import losses_without_target, problem_of_clusters
from kafka_replication.runs.reporting import standing
from kafka_replication.runs.run import open_run
from kafka_replication.runtime import background
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.watermarks.sight import lag_of
from kafka_replication.watermarks.values import ENDED_WELL, SEALED, Lease, RangeOutcome, RunRecord

if TYPE_CHECKING:
    from kafka_replication.store import WatermarkStore


T = TypeVar("T")
log = logging.getLogger(__name__)
RUNS = 20  # the latest runs that are looked at
AT_ONCE = 8  # replications
RECENTLY = timedelta(minutes=5)
SENDING = 60.0  # seconds that alerting may take where nobody waits for it
CHANNELS_SHARE, STORE_SHARE = 0.9, 0.4  # of the budget: when the channels, and when the store must have answered
_PLANNERS = ("plan", "run", "backfill")  # the attempts that make a plan; others hold the lease for something else
_NOTHING: frozenset[Kind] = frozenset()
_OF_RUNS = frozenset({Kind.STALLED, Kind.DIED, Kind.FAILED, Kind.MISSED})
_NOT_BEFORE = (Kind.LAG, Kind.DRILL_WORSE, Kind.DRILL_OVERDUE)  # the first run has ended
_OF_CLUSTERS = frozenset(Kind) - _OF_RUNS - {Kind.STORE, Kind.LEDGER}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """A run that Airflow shows as failed. If it failed before it had a plan, the store does not know it."""

    run_id: str
    began_at: datetime
    ended_at: datetime


def side_by_side(replications: Sequence[Replication], look: Callable[[Replication], T]) -> list[T]:
    """The results of ``look``. If the clusters of one replication do not answer, only its own thread waits."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(look, replications))


@dataclass(frozen=True, slots=True, kw_only=True)
class Orchestrator:
    """Facts about runs that the store does not know: those of Airflow."""

    state: Callable[[str], str | None]  # of a run: queued, running, success or failed; None if it is not known
    paused: Callable[[], bool]  # true if the replication's schedule is switched off
    newest_failed: Callable[[], FailedRun | None]  # the newest run if it has failed; the store may know it or not
    links: Links


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Looks at one replication. ``more`` are channels beside the replication's Apprise connection. ``budget`` is the
    number of seconds that alerting may take. ``lasts``: this process looks again, and remembers what it told alone.
    """

    replication: Replication
    connections: Connections
    open_store: Callable[[], WatermarkStore]
    orchestrator: Orchestrator | None = None
    more: Sequence[Channel] = ()
    budget: float = SENDING
    lasts: bool = False

    def tell(self, problem: ReplicationError | str, run_id: str, *, is_backfill: bool = False) -> Decision:
        """Announce the failure of a run. Asks only the store, because the failure of a run must not wait for a cluster.

        Heals nothing. A store that does not answer within a part of the budget counts as away.
        """
        *cluster, reported = _failures_of(problem, run_id, is_backfill=is_backfill)
        return self._tell(cluster, reported)

    def tell_try(self, problem: ReplicationError, run_id: str) -> Decision:
        """Announce why a try failed that is not the last one, as `tell` does, if a cluster is the cause."""
        *cluster, _ = _failures_of(problem, run_id)
        return self._tell(cluster) if cluster else Decision()

    def _tell(self, cluster: Sequence[Cause], *reported: Cause) -> Decision:
        until, asking = Deadline.after(CHANNELS_SHARE * self.budget), Deadline.after(STORE_SHARE * self.budget)

        def remembered() -> tuple[WatermarkStore, Decision]:
            store = self.open_store()
            of_run = (cause for failure in reported for cause in _of_run(store, failure))
            observed = Observation(causes=(*cluster, *of_run), judged=_NOTHING)

            def in_time(open_: Sequence[OpenCause], now: datetime) -> Decision:
                asking.check("asking the watermark store")  # once left behind, nothing may count as told here
                return self._decide(observed, None, open_, now)

            return store, store.update_causes(self.replication.name, in_time)

        try:
            opened, decision = _within(STORE_SHARE * self.budget, remembered)
            with closing(opened) as store:
                self._send(decision, partial(store.take_back_alerts, self.replication.name), until.left)
                return decision
        except ReplicationError as away:
            log.warning("%s: the store cannot be used: %s", self.replication.name, away)
            return self._report_without_store(away, (*cluster, *reported), until.left)

    def look(self) -> Decision:
        """Look once, send the alerts that are due, and return the decision.

        Takes at most about four times ``timeouts.request``. A process that does not last raises the error of a store
        that is away: it would tell it with each look.
        """
        name = self.replication.name
        try:
            with closing(self.open_store()) as store:
                decision = store.update_causes(name, partial(self._decide, *self._observe(store)))
                self._send(decision, partial(store.take_back_alerts, name))
                healed = self._tell_alone(Observation()).alerts if open_causes.has_told(name) else ()
                return Decision(open=decision.open, alerts=(*decision.alerts, *healed))
        except ReplicationError as problem:
            if not self.lasts:
                raise
            log.warning("%s: the store cannot be used: %s", name, problem)
            return self._report_without_store(problem)

    def _observe(self, store: WatermarkStore) -> tuple[Observation, Sequence[RunFacts] | None]:
        """The causes of now, and the runs; None: they were not looked at."""
        seen, of_runs = RunsSeen(), _NOTHING
        records = store.runs(self.replication.name, RUNS)
        if self.orchestrator is not None or not self._watched_by_airflow(store):
            seen, of_runs = self._runs(store, records), _OF_RUNS
        causes = run_causes(self.replication, seen, datetime.now(UTC))
        of_clusters, judged = self._clusters(store)
        if is_first_copy(records):
            of_clusters = [cause for cause in of_clusters if cause.key.kind not in _NOT_BEFORE]
        observed = Observation(causes=(*causes, *of_clusters), judged=judged | of_runs)
        return observed, seen.runs if of_runs else None

    def _clusters(self, store: WatermarkStore) -> tuple[Sequence[Cause], frozenset[Kind]]:
        """The causes in the clusters, the ledger and the partitions, and the kinds that could be judged."""
        causes, judged = list[Cause](), set[Kind]()
        deadline = Deadline.after(2 * self.replication.timeouts.request)
        run = open_run(self.replication, self.connections, store, f"watch-{self.replication.name}", deadline)
        try:
            raise_together(list(run.clusters.away.values()))
            causes += ledger_causes(self.replication, run.clusters.ledger.obstacle())
            judged.add(Kind.LEDGER)
            rows = standing(run)
            self._record(store, rows)
            causes += partition_causes(self.replication, rows)
            last = store.last_drill(self.replication.name)
            causes += drill_causes(self.replication, last, rows, datetime.now(UTC))
            judged |= _OF_CLUSTERS
        except ReplicationError as problem:
            causes += problem_of_clusters(run, problem)
            causes += losses_without_target(run, problem)
            judged.add(Kind.CLUSTER)
            self._record(store, ())
        return causes, frozenset(judged)

    def _record(self, store: WatermarkStore, rows: Sequence[PartitionStatus]) -> None:
        """Store what was seen, or without partitions what the file says. Only a page misses it if that fails."""
        name, facts = self.replication.name, facts_of(self.replication)
        own = [row for row in rows if row.target_topic == self.replication.target_topic(row.topic)]
        try:
            if rows:
                store.record_standing(name, facts, lag_of(own), rows)
            else:
                store.record_facts(name, facts)
        except ReplicationError as problem:
            log.warning("%s: what was seen could not be stored: %s", self.replication.name, problem)

    def _watched_by_airflow(self, store: WatermarkStore) -> bool:
        """True if Airflow's watch has looked within `RECENTLY`. It knows more about runs: two opinions would open and
        heal the same alert for ever.
        """
        look = store.last_look(self.replication.name)
        return look is not None and datetime.now(UTC) - look.at < RECENTLY

    def _runs(self, store: WatermarkStore, records: Sequence[RunRecord]) -> RunsSeen:
        name = self.replication.name
        leases = store.leases(name)
        facts = [self._facts(store, record, leases) for record in records]
        known = {record.run_id for record in records}
        held = (lease for lease in leases if not lease.waiting)
        planners = (lease for lease in held if (lease.holder or "").startswith(_PLANNERS))
        lease = next((lease for lease in planners if lease.owner not in known), None)
        planning = None if lease is None else Planning(run_id=lease.owner, since=lease.acquired_at)
        runs = (*self._failed_without_plan(known), *(run for run in facts if run is not None))
        runs = tuple(sorted(runs, key=lambda run: run.record.created_at, reverse=True))  # wherever they were started
        return RunsSeen(runs=runs, planning=planning, paused=self._paused(store))

    def _failed_without_plan(self, known: Collection[str]) -> Iterator[RunFacts]:
        """A run that failed before it had a plan."""
        run = self.orchestrator.newest_failed() if self.orchestrator is not None else None
        if run is not None and run.run_id not in known:
            record = RunRecord(
                run_id=run.run_id,
                replication=self.replication.name,
                kind="live",
                state="failed",
                plan="",
                created_at=run.began_at,
                finished_at=run.ended_at,
            )
            why = "it ended before it had a plan; its log in Airflow says why"
            yield RunFacts(record=record, life=Life.ENDED, moved_at=run.ended_at, why=why)

    def _paused(self, store: WatermarkStore) -> bool:
        """True if the schedule is switched off; without Airflow, if it was when Airflow looked last."""
        if self.orchestrator is None:
            look = store.last_look(self.replication.name)
            return look is not None and look.paused
        paused = self.orchestrator.paused()
        store.record_look(self.replication.name, paused)
        return paused

    def _facts(self, store: WatermarkStore, record: RunRecord, leases: Sequence[Lease]) -> RunFacts | None:
        said = None
        if record.state == "planned":
            said = self.orchestrator.state(record.run_id) if self.orchestrator else None
            if said == "success":  # a person has decided so
                return None
        life, why = life_of(record, leases, said)
        failed: tuple[RangeOutcome, ...] = ()
        if life is not Life.AT_WORK and record.state not in ENDED_WELL:
            failed = tuple(outcome for outcome in store.outcomes(record.run_id) if outcome.error)
        return RunFacts(record=record, life=life, moved_at=_moved_at(record), failed=failed, why=why)

    def _decide(
        self, observed: Observation, runs: Sequence[RunFacts] | None, open_: Sequence[OpenCause], now: datetime
    ) -> Decision:
        observed = observed if runs is None else lasting(observed, open_, runs)
        return decide(open_, observed, now, tuple(self._channels()))

    def _send(
        self, decision: Decision, take_back: Callable[[Collection[Alert]], None], seconds: float | None = None
    ) -> None:
        """Send the alerts. Those that were not delivered are taken back, also if this process is told to stop."""
        if not decision.alerts:
            return
        delivered: frozenset[str] = frozenset()
        try:
            name, links = self.replication.name, self.orchestrator.links if self.orchestrator else Links()
            messages = {
                way: (channel, message(name, alerts, links))
                for way, channel in self._channels().items()
                if (alerts := [alert for alert in decision.alerts if way in alert.to])
            }
            whole = message(name, decision.alerts, links)
            delivered = telling.deliver(messages, whole, CHANNELS_SHARE * self.budget if seconds is None else seconds)
        finally:
            left = [(alert, tuple(way for way in alert.to if way not in delivered)) for alert in decision.alerts]
            if untold := [replace(alert, to=ways) for alert, ways in left if ways]:
                take_back(untold)

    def _channels(self) -> dict[str, Channel]:
        connection = self.replication.alerts.apprise
        if connection is None:
            return telling.by_name(self.more or (LogChannel(),))
        return telling.by_name((*self.more, AppriseChannel(connection, partial(self.connections.apprise, connection))))

    def _report_without_store(
        self, problem: ReplicationError, reported: Sequence[Cause] = (), seconds: float | None = None
    ) -> Decision:
        cause = Cause(
            key=CauseKey(Kind.STORE),
            what=f"{problem.what}. Runs cannot start or move watermarks; nothing else can be watched",
            remedy=problem.remedy,
            patience=self.replication.alerts.stalled_after if problem.retriable else 0,
        )
        return self._tell_alone(Observation(causes=(cause, *reported), judged=frozenset({Kind.STORE})), seconds)

    def _tell_alone(self, observed: Observation, seconds: float | None = None) -> Decision:
        name = self.replication.name
        decision = open_causes.update_causes(name, partial(self._decide, observed, None))
        self._send(decision, partial(open_causes.take_back_alerts, name), seconds)
        return decision


def life_of(record: RunRecord, leases: Sequence[Lease], said: str | None) -> tuple[Life, str]:
    """The life of the run, and the reason of its end if it is known. ``leases`` are those that are held, reserved or
    queued for: a run that gives way to another one is queued. ``said`` is the state that Airflow names.
    """
    if record.state in (*ENDED_WELL, "failed"):
        return Life.ENDED, ""
    if record.state != "planned":
        return Life.DIED, ""
    if said == "failed":
        return Life.DIED, "it was marked as failed, or its task was killed; Airflow shows the DAG run as failed"
    if said is not None or any(lease.owner == record.run_id for lease in leases):
        return Life.AT_WORK, ""
    if record.alive or record.run_id.startswith("airflow-"):
        return Life.UNKNOWN, "its next task has not begun; Airflow shows what became of it"
    return Life.DIED, "its process is gone, and its lease has expired"


def _moved_at(record: RunRecord) -> datetime:
    """The time of the run's last commit or verification; else that of its plan."""
    try:
        document = json.loads(record.progress or "{}")
        return datetime.fromisoformat(document.get("moved") or document["at"])
    except (ValueError, KeyError, TypeError):
        return record.created_at


def _within(seconds: float, act: Callable[[], T]) -> T:
    """The result or the error of ``act``. Raises Unreachable if it takes longer; then it is left behind."""
    asked = background.begin(act, "store")
    if not wait([asked], seconds).done:
        what = f"the watermark store does not answer within {seconds:.0f} s"
        raise Unreachable(what, "make the database reachable from this host")
    return asked.result()


def _of_run(store: WatermarkStore, reported: Cause) -> Iterator[Cause]:
    """The store's record of the failed run: one cause for each topic. Otherwise the run's own error."""
    record = store.run(reported.run_id)
    failed = tuple(outcome for outcome in store.outcomes(reported.run_id) if outcome.error) if record else ()
    if record is None or not failed or reported.key.subject == BACKFILL:
        yield reported
    elif record.state != SEALED:  # that was meant to be
        yield from failures(RunFacts(record=record, life=Life.ENDED, moved_at=datetime.now(UTC), failed=failed))


def _failures_of(problem: ReplicationError | str, run_id: str, *, is_backfill: bool = False) -> tuple[Cause, ...]:
    """The causes from a failed run's own error: the failure, behind the cause in a cluster, if the run failed because
    it does not answer or does not let this client in. Later looks find the same cause.
    """
    reported = reported_failure(problem, run_id, is_backfill=is_backfill)
    away = isinstance(problem, Unreachable) and not isinstance(problem, Stalled)
    if not isinstance(problem, ReplicationError) or problem.of_store or not (away or isinstance(problem, NotAdmitted)):
        return (reported,)
    key = CauseKey(Kind.CLUSTER if away else Kind.ADMISSION)
    return Cause(key=key, what=problem.what, remedy=problem.remedy, run_id=run_id), reported


def reported_failure(problem: ReplicationError | str, run_id: str, *, is_backfill: bool = False) -> Cause:
    """The cause from a failed run's own error."""
    what, remedy = (problem, "") if isinstance(problem, str) else (problem.what, problem.remedy)
    return Cause(
        key=CauseKey(Kind.FAILED, BACKFILL if is_backfill else ""),
        what=f"run {run_id} failed: {what}",
        remedy=remedy or "look at its log, then run again: only what is left is repeated",
        at=datetime.now(UTC),
        run_id=run_id,
    )
