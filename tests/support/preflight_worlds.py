"""Topics, settings and snapshots of both sides, for tests of preflight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_replication.config import Replication
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.preflight import check
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic, TopicDefaults

SOURCE = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "retention.ms": "604800000",
    "message.timestamp.type": "CreateTime",
}
TARGET = {**SOURCE, "min.insync.replicas": "2", "unclean.leader.election.enable": "false", "min.compaction.lag.ms": "0"}
UNSAFE = "use 3 replicas, min.insync.replicas=2 and no unclean election"
AT = "orders -> orders"
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
DEFAULTS = TopicDefaults(3, SAFE)  # of brokers that lose nothing


def topic(name: str, config: Mapping[str, str], partitions: int = 2, replicas: int = 3) -> Topic:
    return Topic(
        name=name,
        topic_id=f"id-{name}",
        partitions={number: PartitionOffsets(0, 9, 9) for number in range(partitions)},
        replication_factor=replicas,
        config=config,
    )


def replication(**changes: Any) -> Replication:
    minimal: dict[str, Any] = {
        "name": "orders-dr",
        "source": {"connection": "kafka_source"},
        "target": {"connection": "kafka_target"},
        "topics": {"include": ["^.*orders"]},
    }
    return Replication.model_validate(minimal | changes)


def findings(
    source: Mapping[str, str] = {},
    target: Mapping[str, str] = {},
    partitions: int = 2,
    replicas: int = 3,
    **changes: Any,
) -> list[Trouble]:
    """Of one topic pair that fits but for what is given."""
    pair = topic("orders", {**SOURCE, **source}), topic("orders", {**TARGET, **target}, partitions, replicas)
    return check(replication(**changes), sides({"orders": pair[0]}, {"orders": pair[1]}))


def sides(
    source: Mapping[str, Topic], target: Mapping[str, Topic], target_cluster: str = "TGT", **more: Any
) -> Snapshot:
    known: dict[str, Any] = {"defaults": DEFAULTS, **more}
    return Snapshot(source_cluster="SRC", target_cluster=target_cluster, source=source, target=target, **known)
