"""The configuration of a new target topic: it accepts the records of the source, and keeps them at least as long.

Kafka deletes and compacts whole segments, and uses the largest timestamp of a segment. On the source, old records can
share a segment with new ones and are kept. On the target, a transaction marker has the current time. It starts a new
segment as soon as the first record of the segment is older than `segment.ms`. The old records are then alone in a
segment that Kafka may delete at once, even before they are read back.

Limits on timestamps are checked when a record is written, and ours is written later than at the source. So the target
has no limit on old timestamps. How far a timestamp may lie in the future follows the source.

The source's `retention.bytes` is not used: the same records may need more bytes on the target, and some would be
deleted, even before they are read back. The source's `retention.ms` is used.

Finds target topics that can lose acknowledged records: existing ones, and those that are about to be created.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafka_replication.config import Replication
from kafka_replication.config.model import DAY, TargetTopics
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.snapshot import Topic, TopicDefaults

_SAME_AS_SOURCE = ("max.message.bytes", "cleanup.policy")
AFTER, BEFORE = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"
_BOTH = "message.timestamp.difference.max.ms"  # the one limit of brokers before Kafka 3.6 (KIP-937)
# The target compresses records again, with lz4 unless the connection sets another codec: up to twice the size of zstd.
ROOM = 2
_DAY = DAY * 1000
_FOREVER = 36_500 * _DAY
_UNTIL_READ_BACK = 7 * _DAY  # a weekend without runs, and time to look why, before compaction removes what they compare
_MOST = 2**63 - 1


def created_config(source: Mapping[str, str], settings: TargetTopics) -> dict[str, str]:
    """The configuration of the target topic for a source topic with the configuration ``source``. The settings in
    `target_topics.config` override it.
    """
    config = {"min.compaction.lag.ms": str(_UNTIL_READ_BACK)}
    config |= {name: source[name] for name in _SAME_AS_SOURCE if name in source}
    if AFTER in source or _BOTH in source:
        config |= {AFTER: after_limit(source), BEFORE: str(_MOST)}
    if "retention.bytes" in source:  # set explicitly, because the brokers may have a default limit
        config["retention.bytes"] = "-1"
    if "retention.ms" in source:
        config["retention.ms"] = str(_kept(source))
    if "compact" in source.get("cleanup.policy", ""):
        # Old records and current markers then share a segment. min.compaction.lag.ms protects it until it is full and
        # old enough.
        config["segment.ms"] = str(_FOREVER)
    return {**config, **settings.config}


def after_limit(config: Mapping[str, str]) -> str:
    """The time in milliseconds by which a topic's timestamps may lie in the future."""
    return config.get(AFTER, config.get(_BOTH, str(_MOST)))


def before_limit(config: Mapping[str, str]) -> str:
    """The time in milliseconds by which a topic's timestamps may lie in the past."""
    return config.get(BEFORE, config.get(_BOTH, str(_MOST)))


def _kept(source: Mapping[str, str]) -> int:
    """The retention in milliseconds, -1 for ever. The oldest record of a segment can be older than its newest by
    `segment.ms`. One day is added for reading back.
    """
    retention, segment = int(source["retention.ms"]), int(source.get("segment.ms", 0))
    kept = retention + segment + _DAY
    return kept if retention >= 0 and kept <= _MOST else -1


REMEDY = "use 3 replicas, min.insync.replicas=2 and no unclean election"
_CHECKED = ("min.insync.replicas", "unclean.leader.election.enable")


def check_existing(where: str, what: str, topic: Topic) -> Iterator[Trouble]:
    """Findings about an existing topic. ``what`` is its name in the findings, as in "the target"."""
    yield from _judge(where, what, topic.replication_factor, topic.config)


def check_created(
    replication: Replication, where: str, what: str, config: Mapping[str, str], defaults: TopicDefaults | None
) -> Iterator[Trouble]:
    """Findings about a topic that this run will create with ``config``. The brokers' ``defaults`` give the other
    settings.
    """
    factor = replication.target_topics.replication_factor or (defaults.replication_factor if defaults else None)
    expected = {**(defaults.config if defaults else {}), **config}
    unknown = [name for name in _CHECKED if name not in expected] + ["the replication factor"] * (factor is None)
    if unknown:
        yield Trouble(
            "warning",
            where,
            f"{what} is about to be created, and {', '.join(unknown)} that it will get cannot be read from the brokers",
            "grant DescribeConfigs on the target cluster, or set target_topics.replication_factor and"
            f" target_topics.config ({', '.join(_CHECKED)})",
        )
        return
    yield from _judge(where, f"{what} to be created", factor or 0, expected)


def _judge(where: str, what: str, factor: int, config: Mapping[str, str]) -> Iterator[Trouble]:
    if factor < 2:
        yield Trouble("warning", where, f"{what} has replication factor {factor}: one lost disk loses it", REMEDY)
    elif int(config.get("min.insync.replicas", 1)) < 2:
        yield Trouble("warning", where, f"{what} acknowledges with one replica (min.insync.replicas=1)", REMEDY)
    if config.get("unclean.leader.election.enable") == "true":
        yield Trouble(
            "warning", where, f"{what} allows unclean leader election: acknowledged records can vanish", REMEDY
        )
