"""For OpenLineage: topics as datasets. Its provider, where it is installed, asks an operator for them; else nobody
does.

The names are those of OpenLineage's own integrations for Kafka: the first bootstrap server is the namespace, and the
topic is the name. So what Spark or Flink say of the same topic meets with this.

Metrics through Airflow's own Stats (StatsD, Datadog, OpenTelemetry), from the tasks that know the numbers.

Airflow says where they go, and whether anywhere (section ``metrics`` of its configuration).
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk.configuration import conf
from airflow.sdk.observability.stats import Stats

if TYPE_CHECKING:
    from kafka_replication.config import Replication
    from kafka_replication.copying.engine import CopyResult
    from kafka_replication.model.offsets import PartitionKey
    from kafka_replication.reporting.run import RunReport
    from kafka_replication.runs.clusters import Clusters
    from kafka_replication.runs.steps import Replicated
    from kafka_replication.store import WatermarkStore

log = logging.getLogger(__name__)


PORT: Final = 9092  # that librdkafka takes for an address without one


@dataclass(frozen=True, slots=True)
class Dataset:
    """A topic, or an index or table of a target of another kind."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Lineage:
    """The topics that a task read, and those that it wrote to: records and bytes that this try copied there."""

    inputs: tuple[Dataset, ...] = ()
    outputs: Mapping[Dataset, tuple[int, int]] = field(default_factory=dict)

    def as_openlineage(self) -> Any:
        """An ``OperatorLineage``. Only OpenLineage's provider calls this, so that its packages are there."""
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import InputDataset, OutputDataset
        from openlineage.client.facet_v2 import output_statistics_output_dataset

        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        return OperatorLineage(
            inputs=[InputDataset(namespace=read.namespace, name=read.name) for read in self.inputs],
            outputs=[
                OutputDataset(
                    namespace=written.namespace,
                    name=written.name,
                    outputFacets={"outputStatistics": statistics(rowCount=records, size=size)},
                )
                for written, (records, size) in self.outputs.items()
            ],
        )


def of_run(replication: Replication, clusters: Clusters, done: Replicated) -> Lineage:
    """The lineage of what was copied and read back."""
    source = namespace("kafka", clusters.source)
    target = namespace(replication.target.type, clusters.target_connection)
    return between(source, target, done.copied, (read.key for read in done.read_back))


def between(source: str, target: str, copied: Iterable[CopyResult], read_back: Iterable[PartitionKey]) -> Lineage:
    """The lineage between these two namespaces, in the order of its names."""
    inputs, outputs = set[Dataset](), defaultdict[Dataset, tuple[int, int]](lambda: (0, 0))
    amounts = [(result.key, result.copied, result.bytes) for result in copied]
    for key, records, size in [*amounts, *((key, 0, 0) for key in read_back)]:
        inputs.add(Dataset(source, key.source.topic))
        target_topic = Dataset(target, key.target_topic)
        before = outputs[target_topic]
        outputs[target_topic] = before[0] + records, before[1] + size
    name = attrgetter("name")
    return Lineage(
        tuple(sorted(inputs, key=name)), {written: outputs[written] for written in sorted(outputs, key=name)}
    )


def namespace(kind: str, connection: Mapping[str, Any]) -> str:
    """``kafka://HOST:PORT`` of the first bootstrap server; for targets of other kinds the same of their URL."""
    address = str(connection.get("bootstrap.servers") or connection.get("url") or "").split(",")[0].strip()
    address = address.rpartition("://")[2].partition("/")[0]
    has_port = ":" in address.rpartition("]")[2]
    return f"{kind}://{address if has_port or kind != 'kafka' else f'{address}:{PORT}'}"


PREFIX: Final = "kafka_replication"


def replicated(replication: str, done: Replicated) -> None:
    """Count what this try of a task copied. A try copies only what is left, so nothing is counted twice."""
    for name, amount in done.totals.items():
        _count(replication, name, round(amount))


def reported(replication: str, report: RunReport, *, sealed: bool = False) -> None:
    """Count a run that has ended, and its ranges. ``sealed``: a seal refused all of them, which was meant to be."""
    _count(replication, "runs", 1, outcome="sealed" if sealed else report.outcome)
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
    # In the order in which Airflow chooses where it sends to.
    is_datadog = conf.getboolean("metrics", "statsd_datadog_enabled", fallback=False)
    if (
        is_datadog
        or not conf.getboolean("metrics", "statsd_on", fallback=False)
        or conf.getboolean("metrics", "statsd_influxdb_enabled", fallback=False)
    ):
        return f"{PREFIX}.{name}", {"replication": replication, **tags}
    return ".".join((PREFIX, replication.replace(".", "__"), name, *tags.values())), {}
