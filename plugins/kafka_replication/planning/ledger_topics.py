"""The settings of the ledger's two topics: how they are created, and what existing ones must and should have.

Positions are read whole, so Kafka has to compact them soon: a segment is compacted once it is closed. Small segments
that close early keep what is not compacted below about one MiB a partition. Receipts are read from where unverified
ones can begin, and are kept for a stated time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafka_replication.config import Replication
from kafka_replication.config.model import DAY, TargetTopics
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.planning import safety
from kafka_replication.planning.findings import Finding
from kafka_replication.planning.snapshot import Snapshot, Topic, TopicDefaults

MIB = 1 << 20
# What we set on the positions topic, and the largest value of an existing one that still bounds what is read.
_COMPACTION: dict[str, tuple[str, float]] = {
    "segment.bytes": (str(MIB), 16 * MIB),  # 1 MiB is the least that Kafka 4 takes (KIP-1030)
    "segment.ms": ("60000", 3_600_000),  # so that each run closes the segment of the one before it
    "min.cleanable.dirty.ratio": ("0.1", 0.5),
    "max.compaction.lag.ms": ("3600000", 2**63),
    "min.compaction.lag.ms": ("0", 3_600_000),
}
# Compressed, a MiB would hold some ten times as many entries that are not compacted yet.
_STORED = {"compression.type": "uncompressed"}
# A reader that reads on from an offset has to see what was deleted meanwhile: longer than a run lasts.
_DELETIONS = {"delete.retention.ms": str(DAY * 1000)}
# Which cleanup policies an existing topic may have. Positions are the truth about what was copied: time removes none.
POLICIES = {POSITIONS: ("compact",), RECEIPTS: ("compact,delete", "delete,compact", "compact")}
# An entry of ours is some hundred bytes, coverage with many holes some KiB.
_ALWAYS = {"unclean.leader.election.enable": "false", "max.message.bytes": str(4 * MIB)}


def created(
    name: str, replication: Replication, defaults: TopicDefaults | None
) -> tuple[int | None, Mapping[str, str]]:
    """The replication factor (None: the brokers' own) and the configuration that a ledger topic is created with."""
    settings = replication.target_topics
    return settings.replication_factor, {
        **_ALWAYS,
        **_min_insync(settings, defaults),
        "cleanup.policy": POLICIES[name][0],
        **(
            {setting: ours for setting, (ours, _) in _COMPACTION.items()} | _STORED | _DELETIONS
            if name == POSITIONS
            else {
                "retention.ms": str(replication.retention.receipts * 1000),
                "retention.bytes": "-1",
                "segment.ms": str(DAY * 1000),  # only whole segments expire
            }
        ),
    }


def _min_insync(settings: TargetTopics, defaults: TopicDefaults | None) -> dict[str, str]:
    """What the file says; 2 with 3 replicas or more, so that one broker may be away; else the brokers' own."""
    name = "min.insync.replicas"
    if name in settings.config:
        return {name: settings.config[name]}
    factor = settings.replication_factor or (defaults.replication_factor if defaults else 0)
    return {name: "2"} if factor >= 3 else {}


def check(replication: Replication, snapshot: Snapshot) -> Iterator[Finding]:
    """Findings about the ledger's topics, those that the run is about to create included."""
    if snapshot.ledger is None:
        return
    for name in (POSITIONS, RECEIPTS):
        topic = snapshot.ledger.get(name)
        if topic is None:
            _, config = created(name, replication, snapshot.defaults)
            yield from safety.check_created(replication, name, "the ledger topic", config, snapshot.defaults)
            continue
        yield from safety.check_existing(replication, name, "the ledger topic", topic)
        if name == POSITIONS:
            yield from _compacts_late(topic)


def _compacts_late(topic: Topic) -> Iterator[Finding]:
    late = {
        setting: ours
        for setting, (ours, most) in _COMPACTION.items()
        if setting in topic.config and float(topic.config[setting]) > most
    }
    if late:
        now = ", ".join(f"{setting}={topic.config[setting]}" for setting in late)
        wanted = ",".join(f"{setting}={ours}" for setting, ours in late.items())
        yield Finding(
            "warning",
            topic.name,
            f"Kafka compacts this ledger topic late ({now}): each run reads more of it than it needs to",
            "kafka-configs.sh --bootstrap-server <target> --alter --entity-type topics"
            f" --entity-name {topic.name} --add-config {wanted}",
        )
