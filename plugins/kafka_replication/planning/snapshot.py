"""What both clusters looked like at one moment; taken by an adapter, decided upon by `planning.live`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_replication.model.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Kafka's own three offsets of one partition (`ListOffsets`, KIP-98), and its leader epoch where it is known."""

    log_start: int
    high_watermark: int
    last_stable: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: its id (KIP-516), its partitions, its configuration as `DescribeConfigs` gives it."""

    name: str
    topic_id: str
    partitions: Mapping[int, PartitionOffsets]
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Both sides. ``starts`` holds the offset that ``start_from`` means now, for partitions not opened yet."""

    source_cluster: str
    target_cluster: str
    source: Mapping[str, Topic]
    target: Mapping[str, Topic]
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    until: Mapping[TopicPartition, int] = field(default_factory=dict)  # an end asked for, resolved to offsets
