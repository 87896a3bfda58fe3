"""Topics as datasets of OpenLineage. Its provider, where it is installed, asks an operator for them; else nobody does.

The names are those of OpenLineage's own integrations for Kafka: the first bootstrap server is the namespace, and the
topic is the name. So what Spark or Flink say of the same topic meets with this.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kafka_replication.config import Replication
    from kafka_replication.copying.engine import CopyResult
    from kafka_replication.model.offsets import PartitionKey
    from kafka_replication.runs.clusters import Clusters
    from kafka_replication.runs.steps import Replicated


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
