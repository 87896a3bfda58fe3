"""The settings of the two ledger topics: for their creation, and the checks of existing ones.

The positions topic is read as a whole, so Kafka has to compact it soon. Kafka compacts a segment only after it is
closed. Small segments that close early keep the uncompacted part below about 1 MiB per partition. The receipts topic is
read from the first offset that can be unverified, and it is kept for `retention.receipts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafka_replication.config import Replication
from kafka_replication.config.model import DAY, TargetTopics
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning import topic_settings
from kafka_replication.planning.snapshot import Snapshot, Topic, TopicDefaults

MIB = 1 << 20
# The value that we set on the positions topic, and the largest value of an existing topic that still bounds reading.
_COMPACTION: dict[str, tuple[str, float]] = {
    "segment.bytes": (str(MIB), 16 * MIB),  # 1 MiB is the minimum of Kafka 4 (KIP-1030)
    "segment.ms": ("60000", 3_600_000),  # so that each run closes the segment of the previous run
    "min.cleanable.dirty.ratio": ("0.1", 0.5),
    "max.compaction.lag.ms": ("3600000", 2**63),
    "min.compaction.lag.ms": ("0", 3_600_000),
}
# With compression, 1 MiB would hold about ten times as many uncompacted entries.
_STORED = {"compression.type": "uncompressed"}
# A reader that continues at an offset must see deletions since then, so tombstones are kept longer than a run lasts.
_DELETIONS = {"delete.retention.ms": str(DAY * 1000)}
# The cleanup policies of existing topics. Only positions prove which offsets were copied, so they never expire.
POLICIES = {POSITIONS: ("compact",), RECEIPTS: ("compact,delete", "delete,compact", "compact")}
# A ledger entry has a few hundred bytes; with many holes in its coverage, a few KiB.
_ALWAYS = {"unclean.leader.election.enable": "false", "max.message.bytes": str(4 * MIB)}


def created(
    name: str, replication: Replication, defaults: TopicDefaults | None
) -> tuple[int | None, Mapping[str, str]]:
    """The replication factor (None: the brokers' default) and the configuration of a new ledger topic."""
    settings = replication.target_topics
    return settings.replication_factor, {
        **_ALWAYS,
        **min_insync(settings, defaults),
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


def min_insync(settings: TargetTopics, defaults: TopicDefaults | None) -> dict[str, str]:
    """The value of the replication file. Otherwise 2 with at least 3 replicas, so that one broker may be down.
    Otherwise the brokers' default.
    """
    name = "min.insync.replicas"
    if name in settings.config:
        return {name: settings.config[name]}
    factor = settings.replication_factor or (defaults.replication_factor if defaults else 0)
    return {name: "2"} if factor >= 3 else {}


def check(replication: Replication, snapshot: Snapshot) -> Iterator[Trouble]:
    """Findings about the ledger topics, including those that the run will create."""
    if snapshot.ledger is None:
        return
    for name in (POSITIONS, RECEIPTS):
        topic = snapshot.ledger.get(name)
        if topic is None:
            _, config = created(name, replication, snapshot.defaults)
            yield from topic_settings.check_created(replication, name, "the ledger topic", config, snapshot.defaults)
            continue
        yield from topic_settings.check_existing(name, "the ledger topic", topic)
        if name == POSITIONS:
            yield from _compacts_late(topic)


def _compacts_late(topic: Topic) -> Iterator[Trouble]:
    late = {
        setting: ours
        for setting, (ours, most) in _COMPACTION.items()
        if setting in topic.config and float(topic.config[setting]) > most
    }
    if late:
        now = ", ".join(f"{setting}={topic.config[setting]}" for setting in late)
        wanted = ",".join(f"{setting}={ours}" for setting, ours in late.items())
        yield Trouble(
            "warning",
            topic.name,
            f"Kafka compacts this ledger topic late ({now}): each run reads more of it than it needs to",
            "kafka-configs.sh --bootstrap-server <target> --alter --entity-type topics"
            f" --entity-name {topic.name} --add-config {wanted}",
        )
