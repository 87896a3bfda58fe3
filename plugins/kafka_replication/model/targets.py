"""The kinds of targets: where each is implemented. A file names one as ``target.type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

KAFKA: Final = "kafka"
OPENSEARCH: Final = "opensearch"
HBASE: Final = "hbase"


def _index_problem(name: str) -> str | None:
    """The reason why OpenSearch would refuse an index with the name of a topic; None if it takes it."""
    if name != name.lower():
        return "has capital letters, which no index has"
    if name.startswith(("-", "_")):
        return f"begins with '{name[0]}', as no index does"
    return None


def _table_problem(name: str) -> str | None:
    """The reason why HBase would refuse a table with the name of a topic; None if it takes it."""
    if name.startswith((".", "-")):
        return f"begins with '{name[0]}', as no table does"
    return "is a name that HBase keeps for itself" if name == "zookeeper" else None


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A kind of target of this package: the class that is its `kafka_replication.targets.port.TargetKind`, and what it
    demands of the name of a topic there, beside what Kafka does.
    """

    implementation: str
    name_problem: Callable[[str], str | None] = lambda name: None


# By the word in a file. A kind of somebody else's package is named by its class, ``package.module:Class``.
TARGETS: Final[Mapping[str, BuiltIn]] = {
    KAFKA: BuiltIn("kafka_replication.kafka.target:KafkaTarget"),
    OPENSEARCH: BuiltIn("kafka_replication.opensearch.target:OpenSearchTarget", _index_problem),
    HBASE: BuiltIn("kafka_replication.hbase.target:HBaseTarget", _table_problem),
}

# What a target keeps. records: every record, each at a place of its own. latest: for each key its newest record.
Shape = Literal["records", "latest"]
RECORDS: Final = "records"
LATEST: Final = "latest"
SHAPES: Final[tuple[Shape, ...]] = (RECORDS, LATEST)

# What a target promises. transactional: readers see a chunk's records, its receipt and the new position together, or
# nothing of them. idempotent: readers may see records of a chunk before its commit; writing it again changes nothing,
# and a copier that was replaced cannot change what its successor wrote. latest: the same about the newest record of
# each key; older ones are not there, and what was written and not committed cannot be taken back.
Promise = Literal["transactional", "idempotent", "latest"]
TRANSACTIONAL: Final = "transactional"
IDEMPOTENT: Final = "idempotent"
EARLY: Final = "the target is not transactional: its readers may see records before they are committed"


def promised(promise: Promise, shape: Shape) -> Promise:
    """The promise of a target of this shape, of a kind that promises so much about records."""
    return LATEST if shape == LATEST else promise


def implementation(kind: str) -> str:
    """The class of this kind, as ``package.module:Class``."""
    return TARGETS[kind].implementation if kind in TARGETS else kind


def module_of(kind: str) -> str:
    """The module that has the class of this kind."""
    return implementation(kind).partition(":")[0]


def name_problem(kind: str, topic: str) -> str | None:
    """The reason why a target of this kind does not take a topic of this name, which Kafka would take; None if it
    does, or if the kind is not of this package.
    """
    return TARGETS[kind].name_problem(topic) if kind in TARGETS else None
