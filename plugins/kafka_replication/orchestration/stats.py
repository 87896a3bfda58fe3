"""Metrics through Airflow's own Stats (StatsD, Datadog, OpenTelemetry), from the tasks that know the numbers.

Airflow says where they go, and whether anywhere (section ``metrics`` of its configuration).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from airflow.sdk.configuration import conf
from airflow.sdk.observability.stats import Stats

if TYPE_CHECKING:
    from kafka_replication.reporting.run import RunReport
    from kafka_replication.runs.steps import Replicated
    from kafka_replication.store import WatermarkStore


log = logging.getLogger(__name__)
PREFIX: Final = "kafka_replication"


def replicated(replication: str, done: Replicated) -> None:
    """Count what this try of a task copied. A try copies only what is left, so nothing is counted twice."""
    for name, amount in done.totals.items():
        _count(replication, name, round(amount))


def reported(replication: str, report: RunReport) -> None:
    """Count a run that has ended, and its ranges."""
    _count(replication, "runs", 1, outcome=report.outcome)
    for outcome, ranges in Counter("failed" if line.error else "verified" for line in report.ranges).items():
        _count(replication, "ranges", ranges, outcome=outcome)


def looked(open_store: Callable[[], WatermarkStore], replications: list[str]) -> None:
    """Say how each of these replications stands, as far as it is known. Raises Unreachable, Refused."""
    from kafka_replication.overview.rows import rows

    with closing(open_store()) as store:
        now = datetime.now(UTC)
        for row in rows(store, now, replications):
            verified = row.last_verified
            for name, value in {
                "lag_records": row.lag.records,
                "lag_seconds": row.lag.seconds,
                "seconds_since_verified": None if verified is None else (now - verified).total_seconds(),
                "failed_records": row.undecided,
                "open_alerts": len(row.causes),
            }.items():
                if value is not None:
                    stat, tags = _named(row.replication, name)
                    Stats.gauge(stat, value, tags=tags)


def _count(replication: str, name: str, count: int, **tags: str) -> None:
    if count:
        stat, tags = _named(replication, name, **tags)
        Stats.incr(stat, count, tags=tags)


def _named(replication: str, name: str, **tags: str) -> tuple[str, dict[str, str]]:
    """The name of a metric, and its tags. Plain StatsD has no tags: there, all of it is in the name."""
    if _has_tags():
        return f"{PREFIX}.{name}", {"replication": replication, **tags}
    return ".".join((PREFIX, replication.replace(".", "__"), name, *tags.values())), {}


def _has_tags() -> bool:
    """True unless Airflow sends to plain StatsD. In the order in which it chooses."""
    if conf.getboolean("metrics", "statsd_datadog_enabled", fallback=False):
        return True
    if conf.getboolean("metrics", "statsd_on", fallback=False):
        return bool(conf.getboolean("metrics", "statsd_influxdb_enabled", fallback=False))
    return True
