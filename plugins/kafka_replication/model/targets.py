"""The kinds of targets: where each is implemented. A file names one as ``target.type``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

KAFKA: Final = "kafka"
OPENSEARCH: Final = "opensearch"
HBASE: Final = "hbase"
# By the word in a file: the class that is its `kafka_replication.targets.port.TargetKind`. A kind of somebody else's
# package is named as it stands here, ``package.module:Class``.
TARGETS: Final[Mapping[str, str]] = {
    KAFKA: "kafka_replication.kafka.target:KafkaTarget",
    OPENSEARCH: "kafka_replication.opensearch.target:OpenSearchTarget",
    HBASE: "kafka_replication.hbase.target:HBaseTarget",
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


def module_of(kind: str) -> str:
    """The module that has the class of this kind."""
    return TARGETS.get(kind, kind).partition(":")[0]
