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

# What a kind of target promises. transactional: readers see a chunk's records, its receipt and the new position
# together, or nothing of them. idempotent: readers may see records of a chunk before its commit; writing it again
# changes nothing, and a copier that was replaced cannot change what its successor wrote.
Promise = Literal["transactional", "idempotent"]
TRANSACTIONAL: Final = "transactional"
IDEMPOTENT: Final = "idempotent"
EARLY: Final = "the target is idempotent, not transactional: its readers may see records before they are committed"


def module_of(kind: str) -> str:
    """The module that has the class of this kind."""
    return TARGETS.get(kind, kind).partition(":")[0]
