"""The dry half of a failover, in production: what would be left if the source died now. Changes nothing but the store,
which keeps the result.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

from kafka_replication.documents import StatusRow
from kafka_replication.model.times import now
from kafka_replication.overview.rows import facts_of
from kafka_replication.reporting.drill import DrillDocument, worse_than
from kafka_replication.reporting.failover import FailoverRow
from kafka_replication.runs import failover, sealing
from kafka_replication.runs.reporting import standing
from kafka_replication.runs.run import Run
from kafka_replication.watermarks.sight import Since, lag_of


def drill(run: Run) -> DrillDocument:
    """Look at both clusters, as the watch does, and see what a failover would leave now. A source that does not answer
    is no obstacle: then it is what the last look saw. The store keeps the result, unless the direction is sealed.

    Raises Refused for a replication that cannot be sealed, Unreachable, NotAdmitted, LedgerUnreadable.
    """
    sealing.check(run)
    file = run.replication
    if looked := "source" not in run.clusters.away:
        rows = standing(run)
        lag = lag_of([row for row in rows if row.target_topic == file.target_topic(row.topic)])
        run.store.record_standing(file.name, facts_of(file), lag, rows)
    dry = failover.preview(run)
    own = [row for row in dry.partitions if row.target_topic == file.target_topic(row.topic)]  # not of backfills
    seen = {(row.source, row.target_topic): row for row in run.store.standing_partitions(file.name)}
    looked_at = None if looked else dry.looked_at
    ages = [_age(row, seen.get((row.source, row.target_topic)), looked_at) for row in own]
    seconds, since = max(ages, default=(0.0, "last look"))
    moved = [row for row in dry.groups if row.state != "left out"]
    document = DrillDocument(
        replication=file.name,
        at=now(),
        records=sum(row.not_verified + (row.beyond or 0) for row in own),
        unknown=sum(row.beyond is None for row in own),
        seconds=None if math.isinf(seconds) else seconds,
        since=since,
        groups_exact=sum(0 < len(row.partitions) == row.exact for row in moved),
        groups_moved=len(moved),
        said="",
        looked=looked,
        failover=replace(dry, partitions=own),
    )
    if dry.state == "sealed":
        return replace(document, said="this direction is sealed: a failover would change nothing")
    run.store.record_drill(file.name, document)
    return replace(document, said=document.sentence, worse=worse_than(file.objectives, document))


def _age(row: FailoverRow, seen: StatusRow | None, looked_at: str | None) -> tuple[float, Since]:
    """The age of what a partition would lose, and since when it is. ``looked_at`` is the time of an earlier look; None:
    it was just now.
    """
    passed = _passed(looked_at) if looked_at else 0.0
    if seen is not None and seen.lag_seconds is not None:
        return seen.lag_seconds + passed, "oldest record" if seen.lag else "last look"
    return (_passed(row.verified_at) if row.verified_at else math.inf), "last verification"


def _passed(since: str) -> float:
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds())
