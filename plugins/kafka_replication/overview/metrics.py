"""The metrics that Prometheus scrapes: the rows of all replications as metrics. Reads the store alone, once a scrape.

A time is exported as Unix time. A rule says ``time() - ..._timestamp_seconds``, which grows also while nobody looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from kafka_replication.overview.rows import Row, State, rows
from kafka_replication.watermarks.sight import (
    BYTES,
    RANGES,
    RECORDS,
    RETRIES,
    RUNS,
    THROTTLED,
    Total,
    Totals,
)

if TYPE_CHECKING:
    from kafka_replication.store import WatermarkStore

NAME: Final = "kafka_replication"
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
Gauge = tuple[str, str, Callable[[Row], float | None]]
# Name without prefix, help, and the value; a value that is not known has no sample.
GAUGES: Final[tuple[Gauge, ...]] = (
    ("lag_records", "Source offsets after the watermarks, at the time of the newest look.", lambda r: r.lag.records),
    ("lag_seconds", "Age of the oldest record that is not verified on the target.", lambda r: r.lag.seconds),
    ("partitions", "Partitions at the time of the newest look.", lambda r: r.partitions),
    ("look_timestamp_seconds", "Unix time of the newest look at both clusters.", lambda r: _unix(r.measured_at)),
    (
        "last_verified_timestamp_seconds",
        "Unix time when a watermark moved last.",
        lambda r: _unix(r.last_verified),
    ),
    ("failed_records", "Records that were set aside and wait for a decision.", lambda r: r.undecided),
    ("runs_at_work", "Runs that work now.", lambda r: len(r.running)),
    ("needs_person", "1 if the replication needs a person, else 0.", lambda r: r.state.needs_person),
    ("paused", "1 while the schedule is switched off, else 0.", lambda r: r.paused),
    (
        "last_run_records",
        "Records of the newest run that copied something.",
        lambda r: r.work.records if r.work else None,
    ),
    ("last_run_bytes", "Bytes of the last run that copied something.", lambda r: r.work.bytes if r.work else None),
    (
        "last_run_duration_seconds",
        "Time from the plan to the end of the last run that copied something.",
        lambda r: r.work.seconds if r.work else None,
    ),
    ("last_run_end_timestamp_seconds", "Unix time of its end.", lambda r: _unix(r.work.at) if r.work else None),
)
# The name of a sum in the store, help, and further labels.
COUNTERS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (RUNS, "Runs that ended.", ("kind", "outcome")),
    (RANGES, "Ranges of runs that ended.", ("outcome",)),
    (RECORDS, "Records that runs copied.", ()),
    (BYTES, "Bytes that runs copied.", ()),
    (RETRIES, "Sessions of ranges beyond the first one: after an error, or with another engine.", ()),
    (THROTTLED, "Seconds for which quotas or a target that was not ready made copies wait, all ranges together.", ()),
)


@dataclass(frozen=True, slots=True, eq=False)  # a registry knows it by itself
class Collector:
    """All metrics, read from the store at each scrape. ``names`` are the replications; None: all."""

    open_store: Callable[[], WatermarkStore]
    by_topic: bool = False
    names: Collection[str] | None = None

    def describe(self) -> Iterator[Metric]:
        """Nothing: a registry would else scrape as it is made."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Raises Unreachable, Refused: then there is no answer to the scrape, and ``up`` is 0."""
        with closing(self.open_store()) as store:
            found = rows(store, datetime.now(UTC))
            if self.names is not None:
                found = [row for row in found if row.replication in self.names]
            yield from _of_rows(found)
            if self.by_topic:
                yield _topics(store, found)
            yield from _counters(store.totals(), [row.replication for row in found])


def registry(collector: Collector) -> CollectorRegistry:
    """A registry with these metrics alone."""
    made = CollectorRegistry(auto_describe=False)
    made.register(collector)
    return made


def exposition(collector: Collector) -> bytes:
    """The metrics as Prometheus reads them, of the type `CONTENT_TYPE`. Raises Unreachable, Refused."""
    return generate_latest(registry(collector))


def _of_rows(found: list[Row]) -> Iterator[Metric]:
    routes = InfoMetricFamily(NAME, "The connections of each replication.", labels=["replication"])
    for row in found:
        routes.add_metric([row.replication], {"source": row.source, "target": row.target})
    yield routes
    for name, help_, value_of in GAUGES:
        gauge = GaugeMetricFamily(f"{NAME}_{name}", help_, labels=["replication"])
        for row in found:
            value = value_of(row)
            if value is not None:
                gauge.add_metric([row.replication], float(value))
        yield gauge
    states = GaugeMetricFamily(f"{NAME}_state", "1 for the state that it is in.", labels=["replication", "state"])
    alerts = GaugeMetricFamily(f"{NAME}_open_alerts", "Open alerts.", labels=["replication", "kind"])
    for row in found:
        for state in State:
            states.add_metric([row.replication, state.value], float(state is row.state))
        for kind, number in sorted(Counter(cause.key.kind.value for cause in row.causes).items()):
            alerts.add_metric([row.replication, kind], number)
    yield states
    yield alerts


def _topics(store: WatermarkStore, found: list[Row]) -> Metric:
    lag = GaugeMetricFamily(
        f"{NAME}_topic_lag_records", "Source offsets after the watermarks.", labels=["replication", "topic"]
    )
    for row in found:
        sums = Counter[str]()
        for partition in store.standing_partitions(row.replication):
            sums[partition.topic] += partition.lag or 0
        for topic, offsets in sorted(sums.items()):
            lag.add_metric([row.replication, topic], offsets)
    return lag


def _counters(totals: Mapping[str, Totals], names: Iterable[str]) -> Iterator[Metric]:
    for name, help_, labels in COUNTERS:
        family = CounterMetricFamily(f"{NAME}_{name}", help_, labels=["replication", *labels])
        for replication in names:
            of_name = {total: value for total, value in totals.get(replication, {}).items() if total.name == name}
            if not labels:
                of_name = of_name or {Total(name): 0.0}  # so that the series is there before the first run ends
            for total, value in of_name.items():
                values = {"kind": total.kind, "outcome": total.outcome}
                family.add_metric([replication, *(values[label] for label in labels)], value)
        yield family


def _unix(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
