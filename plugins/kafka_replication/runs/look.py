"""The causes of alerts that a look at both clusters finds if one of them does not answer, or lets nobody in."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

from kafka_replication.alerting.open_causes import Cause, CauseKey, Kind
from kafka_replication.model.errors import NotAdmitted, OutOfTime, ReplicationError, Stalled, Unreachable
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.live import own
from kafka_replication.reporting.causes import foreseen_losses
from kafka_replication.runs.reporting import without_target
from kafka_replication.runs.run import Run

log = logging.getLogger(__name__)


def losses_without_target(run: Run, problem: ReplicationError) -> list[Cause]:
    """The losses at the source that the store alone foresees, if only the target is away."""
    try:
        only_target = set(run.clusters.away) == {"target"}
        return list(foreseen_losses(without_target(run, Trouble.of(problem)))) if only_target else []
    except ReplicationError as error:
        log.debug("%s: what the source will drop was not found out: %s", run.replication.name, error)
        return []


def problem_of_clusters(run: Run, problem: ReplicationError) -> Iterator[Cause]:
    """The cause because of which the clusters could not be read. A sealed direction does without its source."""
    if isinstance(problem, Stalled):  # a transaction is open in the ledger: the cluster answers
        return
    with suppress(ReplicationError):
        if set(run.clusters.away) == {"source"} and own(run.replication, run.view()).is_sealed:
            return
    if isinstance(problem, (Unreachable, OutOfTime)):
        yield Cause(
            key=CauseKey(Kind.CLUSTER),
            what=problem.what,
            remedy=problem.remedy,
            patience=run.replication.alerts.stalled_after,
        )
    else:
        kind = Kind.ADMISSION if isinstance(problem, NotAdmitted) else Kind.REFUSED
        yield Cause(key=CauseKey(kind), what=problem.what, remedy=problem.remedy)
