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
class TopicDefaults:
    """What the target's brokers give to a created topic that does not ask for something else."""

    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)  # names and values as of a topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Both sides. ``starts`` holds the offset that ``start_from`` means now, for partitions not opened yet."""

    source_cluster: str
    target_cluster: str
    source: Mapping[str, Topic]
    target: Mapping[str, Topic]
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    until: Mapping[TopicPartition, int] = field(default_factory=dict)  # an end asked for, resolved to offsets
    ledger: Mapping[str, Topic] | None = None  # the ledger's topics that exist; None: not asked for
    defaults: TopicDefaults | None = None  # None: not asked for, or the brokers may not be asked
