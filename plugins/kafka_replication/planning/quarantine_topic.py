"""The settings of a replication's quarantine topic: for its creation, and the checks of an existing one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafka_replication.config import Replication
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning import topic_settings
from kafka_replication.planning.ledger_topics import min_insync
from kafka_replication.planning.snapshot import Snapshot, Topic, TopicDefaults

PARTITIONS = 16
LARGEST = str(2**31 - 1)  # bytes of a record. A record that is too large for every target topic has to fit here


def is_wanted(replication: Replication) -> bool:
    """True if records can be quarantined."""
    return "quarantine" in replication.failures.policies


def created(replication: Replication, defaults: TopicDefaults | None) -> tuple[int | None, Mapping[str, str]]:
    """The replication factor (None: the brokers' default) and the configuration of a new quarantine topic."""
    settings = replication.target_topics
    return settings.replication_factor, {
        "cleanup.policy": "delete",
        "retention.ms": "-1",  # a record stays until a person has decided about it
        "retention.bytes": "-1",
        "max.message.bytes": LARGEST,
        "message.timestamp.type": "CreateTime",
        "unclean.leader.election.enable": "false",
        **min_insync(settings, defaults),
    }


def check(replication: Replication, snapshot: Snapshot) -> Iterator[Trouble]:
    """Findings about the quarantine topic, also if the run will create it."""
    if not is_wanted(replication) or snapshot.ledger is None:
        return
    name, topic = replication.quarantine_topic, snapshot.quarantine
    if topic is None:
        _, config = created(replication, snapshot.defaults)
        yield from topic_settings.check_created(replication, name, "the quarantine topic", config, snapshot.defaults)
        return
    if topic.problem is not None:
        yield Trouble("error", name, topic.problem.what, topic.problem.remedy)
        return
    yield from topic_settings.check_existing(name, "the quarantine topic", topic)
    yield from _keeps_everything(snapshot, topic)


def _keeps_everything(snapshot: Snapshot, topic: Topic) -> Iterator[Trouble]:
    if "compact" in topic.config.get("cleanup.policy", ""):
        yield Trouble(
            "error",
            topic.name,
            "the quarantine topic is compacted: it would refuse records without a key, and remove older ones",
            f"set cleanup.policy=delete on {topic.name}",
        )
    size = int(topic.config.get("max.message.bytes", LARGEST))
    largest = max((int(source.config.get("max.message.bytes", 0)) for source in snapshot.source.values()), default=0)
    if size < 2 * largest:
        yield Trouble(
            "warning",
            topic.name,
            f"the quarantine topic takes {size} bytes a record, the source {largest}: a large record may not fit, and"
            " then its partition fails",
            f"set max.message.bytes={LARGEST} on {topic.name}",
        )
    if int(topic.config.get("retention.ms", -1)) >= 0:
        yield Trouble(
            "warning",
            topic.name,
            f"the quarantine topic deletes records after {topic.config['retention.ms']} ms, also those still"
            " waiting for a decision",
            f"set retention.ms=-1 on {topic.name}",
        )
