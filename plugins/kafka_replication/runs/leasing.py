"""Acquire the lease of target topics, which turns a `Run` into a `LeasedRun`; and what each kind of run asks for."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from kafka_replication.kafka import snapshotter
from kafka_replication.model.errors import NotAdmitted, ReplicationError, Unreachable
from kafka_replication.planning.live import own
from kafka_replication.planning.plan import Plan
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.runtime.identity import ProcessIdentity
from kafka_replication.store.held_lease import HeldLease, Release, Terms, wait_for_lease
from kafka_replication.watermarks.values import Claim, Scope, TargetTopics

EVERYTHING = Scope.exactly(TargetTopics.ALL)
NOTHING = Scope.exactly(TargetTopics.NONE)
# Seconds after which the lease of a run that died on another host ends: the next run need not wait long, and a run that
# works, which renews it three times in this time, may fail twice.
DURATION = 15.0
# Seconds that a run waits for target topics that another run is at work on. A run of few records ends in this time, and
# so does a slice of a long one, which then gives way.
WAIT = 60.0


def live_scope(run: Run, source_topics: Iterable[str] = ()) -> Scope:
    """The scope of a live run: everything. It waits for the replication's own target topics, or for those of
    ``source_topics``, and then leaves to other runs what they are at work on.
    """
    names = source_topics or _source_topics(run)
    return Scope(wants=TargetTopics.ALL, needs=_targets(run, names), at_least=TargetTopics.NONE)


def interval_scope(run: Run) -> Scope:
    """All of the replication's own target topics: a data interval is copied as a whole."""
    own = _targets(run, _source_topics(run))
    return Scope(wants=TargetTopics.ALL, needs=own, at_least=own)


def backfill_scope(run: Run, source_topics: Iterable[str], target_topic: str | None) -> Scope:
    """The target topics of a backfill. Into the replication's own topics it opens all of them, if no run did."""
    if target_topic is not None:
        return Scope.exactly(TargetTopics.of([target_topic]))
    target, source_topics = run.replication.target_name, source_topics or _source_topics(run)
    opened = any(key.target_topic == target(key.source.topic) for key in run.store.watermarks(run.replication.name))
    return Scope.exactly(_targets(run, source_topics if opened else [*source_topics, *_source_topics(run)]))


def topics_of(plan: Plan) -> TargetTopics:
    """The target topics on which a plan has work."""
    return TargetTopics.of(planned.key.target_topic for planned in (*plan.to_copy, *plan.pending))


def topic_scope(target_topic: str) -> Scope:
    """One target topic."""
    return Scope.exactly(TargetTopics.of([target_topic]))


def _source_topics(run: Run) -> list[str]:
    names: Iterable[str]
    try:
        run.clusters.connect()
        names = snapshotter.candidates(run.replication, run.clusters.source_admin)
    except (Unreachable, NotAdmitted):
        if not (view := own(run.replication, run.view())).is_sealed:
            raise
        names = {key.source.topic for key in view.positions}  # the source was given up
    return [name for name in names if run.replication.selects(name)]


def _targets(run: Run, source_topics: Iterable[str]) -> TargetTopics:
    return TargetTopics.of(map(run.replication.target_name, source_topics))


def acquire_lease(run: Run, scope: Scope, *, attempt: str, release: Release) -> HeldLease:
    """Acquire a lease for the run; wait at most `WAIT` seconds. Raises Busy, which names the holder.

    ``attempt`` names the holder. A random part makes it unique, so that two processes of the same name never have the
    lease at the same time.
    """
    holder, terms = f"{attempt} {secrets.token_hex(4)}", Terms(duration=DURATION, wait=WAIT)
    name, process = run.replication.name, ProcessIdentity.own()
    claim = Claim(replication=name, owner=run.run_id, holder=holder, scope=scope, process=process)
    return HeldLease(run.store, wait_for_lease(run.store, claim, terms), terms, release=release)


@contextmanager
def leased(run: Run, scope: Scope, attempt: str = "command") -> Iterator[LeasedRun]:
    """``run`` with a lease of its own, which is renewed while the body runs and released after it. Raises Busy.

    If the body fails, a run that was planned ends as failed.
    """
    with acquire_lease(run, scope, attempt=attempt, release="always") as hold:
        try:
            yield run.holding(hold)
        except BaseException:
            with suppress(ReplicationError):  # it was not planned yet; or the store is away, and the next run sees it
                run.store.finish_run(run.run_id, "failed")
            raise
