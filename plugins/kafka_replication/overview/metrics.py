"""The metrics that Prometheus scrapes: the rows of all replications as metrics. Reads the store alone, once a scrape.

A time is exported as Unix time. A rule says ``time() - ..._timestamp_seconds``, which grows also while nobody looks.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from kafka_replication.overview.rows import Row, State, rows
from kafka_replication.watermarks.store import WatermarkStore
from kafka_replication.watermarks.values import RunRecord

NAME: Final = "kafka_replication"
MOST_RUNS: Final = 200  # of one replication that end between two scrapes; of more, the oldest are not counted
AT_ONCE: Final = 20  # runs that a scrape reads of a replication; more only if none of these is known
Labels = tuple[str, ...]
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


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts what ended since the counting began, from the store. A counter must never fall, but the store forgets old
    runs: so it cannot be a sum over the store.
    """

    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    runs: Counter[Labels] = field(default_factory=Counter)  # replication, kind, outcome
    ranges: Counter[Labels] = field(default_factory=Counter)  # replication, outcome
    records: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    _counted: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))  # in their order

    def add(self, store: WatermarkStore, names: Iterable[str]) -> None:
        """Count the runs that have ended since the last call. Raises Unreachable, Refused."""
        for name in names:
            for record in self._new(store, name):
                self._count(store, record)
                self._counted[name][record.run_id] = None
            for run_id in list(self._counted[name])[: -2 * MOST_RUNS]:  # far behind what is read again
                del self._counted[name][run_id]
            for counter in (self.records, self.bytes):
                counter[name] += 0  # so that the series is there before the first run ends

    def _new(self, store: WatermarkStore, name: str) -> list[RunRecord]:
        """The runs that have ended and are not counted yet, the oldest first."""
        found: list[RunRecord] = []
        before: int | None = None
        for _ in range(MOST_RUNS // AT_ONCE):
            part = store.runs_before(name, before, AT_ONCE)
            ended = [record for _, record in part if record.finished_at is not None]
            new = [record for record in ended if record.run_id not in self._counted[name] and self._is_new(record)]
            found += new
            if len(part) < AT_ONCE or len(new) < len(ended):  # the runs before these are known, too
                break
            before = part[-1][0]
        return found[::-1]

    def _is_new(self, record: RunRecord) -> bool:
        return record.finished_at is not None and record.finished_at >= self.since

    def _count(self, store: WatermarkStore, record: RunRecord) -> None:
        name, outcomes = record.replication, store.outcomes(record.run_id)
        self.runs[name, record.kind, record.state] += 1
        for outcome in outcomes:
            self.ranges[name, "failed" if outcome.error else "verified"] += 1
        self.records[name] += sum(outcome.copied for outcome in outcomes)
        self.bytes[name] += sum(outcome.bytes for outcome in outcomes)


@dataclass(slots=True, eq=False)
class Collector:
    """All metrics, read from the store at each scrape."""

    open_store: Callable[[], WatermarkStore]
    tally: Tally
    by_topic: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)  # two scrapes at once count a run once

    def describe(self) -> Iterator[Metric]:
        """Nothing: a registry would else scrape as it is made."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Raises Unreachable, Refused: then there is no answer to the scrape, and ``up`` is 0."""
        store = self.open_store()
        try:
            with self._lock:
                found = rows(store, datetime.now(UTC))
                yield from _of_rows(found)
                if self.by_topic:
                    yield _topics(store, found)
                self.tally.add(store, [row.replication for row in found])
                yield from _counters(self.tally)
        finally:
            store.close()


def registry(collector: Collector) -> CollectorRegistry:
    """A registry with these metrics alone."""
    made = CollectorRegistry(auto_describe=False)
    made.register(collector)
    return made


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
            sums[partition["topic"]] += partition["lag"] or 0
        for topic, offsets in sorted(sums.items()):
            lag.add_metric([row.replication, topic], offsets)
    return lag


def _counters(tally: Tally) -> Iterator[Metric]:
    runs = CounterMetricFamily(f"{NAME}_runs", "Runs that ended.", labels=["replication", "kind", "outcome"])
    for labels, number in sorted(tally.runs.items()):
        runs.add_metric(labels, number)
    ranges = CounterMetricFamily(f"{NAME}_ranges", "Ranges of runs that ended.", labels=["replication", "outcome"])
    for labels, number in sorted(tally.ranges.items()):
        ranges.add_metric(labels, number)
    yield from (runs, ranges)
    for what, counter in (("records", tally.records), ("bytes", tally.bytes)):
        family = CounterMetricFamily(f"{NAME}_{what}", f"Copied {what} of runs that ended.", labels=["replication"])
        for replication, number in sorted(counter.items()):
            family.add_metric([replication], number)
        yield family


def _unix(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
