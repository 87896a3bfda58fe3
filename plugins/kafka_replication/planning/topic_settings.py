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

The two ledger topics: the positions topic is read as a whole, so Kafka has to compact it soon. Kafka compacts a
segment only after it is closed. Small segments that close early keep the uncompacted part below about 1 MiB per
partition. The receipts topic is read from the first offset that can be unverified, and it is kept for
`retention.receipts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafka_replication.config import Replication
from kafka_replication.config.model import DAY, TargetTopics
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.snapshot import Snapshot, Topic, TopicDefaults

_SAME_AS_SOURCE = ("max.message.bytes", "cleanup.policy")
AFTER, BEFORE = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"
_BOTH = "message.timestamp.difference.max.ms"  # the one limit of brokers before Kafka 3.6 (KIP-937)
# The target compresses records again, with lz4 unless the connection sets another codec: up to twice the size of zstd.
ROOM = 2
_DAY = DAY * 1000
FOREVER = 36_500 * _DAY
_UNTIL_READ_BACK = 7 * _DAY  # a weekend without runs, and time to look why, before compaction removes what they compare
_MOST = 2**63 - 1


def created_config(source: Mapping[str, str], settings: TargetTopics) -> dict[str, str]:
    """The configuration of the target topic for a source topic with the configuration ``source``. The settings in
    `target_topics.config` override it.
    """
    config = {"min.compaction.lag.ms": str(max(_UNTIL_READ_BACK, int(source.get("min.compaction.lag.ms", 0))))}
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
        config["segment.ms"] = str(FOREVER)
    return {**config, **settings.config}


def before_3_6(config: Mapping[str, str]) -> dict[str, str]:
    """The same configuration for brokers before Kafka 3.6, which have one limit for both directions: the larger one."""
    limit = max(int(after_limit(config)), int(before_limit(config)))
    return {_BOTH: str(limit), **{name: value for name, value in config.items() if name not in (AFTER, BEFORE)}}


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
    yield from check_safety(where, f"{what} to be created", factor or 0, expected)


def check_safety(where: str, what: str, factor: int, config: Mapping[str, str]) -> Iterator[Trouble]:
    """Findings about a topic that can lose records. ``what`` is its name in the findings, as in "the target"."""
    if factor < 2:
        yield Trouble("warning", where, f"{what} has replication factor {factor}: one lost disk loses it", REMEDY)
    elif int(config.get("min.insync.replicas", 1)) < 2:
        yield Trouble("warning", where, f"{what} acknowledges with one replica (min.insync.replicas=1)", REMEDY)
    if config.get("unclean.leader.election.enable") == "true":
        yield Trouble(
            "warning", where, f"{what} allows unclean leader election: acknowledged records can vanish", REMEDY
        )


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
Created = tuple[int | None, Mapping[str, str]]  # the replication factor (None: the brokers' default), configuration
# A ledger entry has a few hundred bytes; with many holes in its coverage, a few KiB.
_ALWAYS = {"unclean.leader.election.enable": "false", "max.message.bytes": str(4 * MIB)}


def ledger_created(name: str, replication: Replication, defaults: TopicDefaults | None) -> Created:
    """A new ledger topic."""
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


def check_ledger(replication: Replication, snapshot: Snapshot) -> Iterator[Trouble]:
    """Findings about the ledger topics, including those that the run will create."""
    if snapshot.ledger is None:
        return
    for name in (POSITIONS, RECEIPTS):
        topic = snapshot.ledger.get(name)
        if topic is None:
            _, config = ledger_created(name, replication, snapshot.defaults)
            yield from check_created(replication, name, "the ledger topic", config, snapshot.defaults)
            continue
        yield from check_safety(name, "the ledger topic", topic.replication_factor, topic.config)
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


QUARANTINE_PARTITIONS = 16
LARGEST = str(2**31 - 1)  # bytes of a record. A record that is too large for every target topic has to fit here


def may_quarantine(replication: Replication) -> bool:
    """True if records can be quarantined."""
    return "quarantine" in replication.failures.policies


def quarantine_created(replication: Replication, defaults: TopicDefaults | None) -> Created:
    """A new quarantine topic."""
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


def check_quarantine(replication: Replication, snapshot: Snapshot) -> Iterator[Trouble]:
    """Findings about the quarantine topic, also if the run will create it."""
    if not may_quarantine(replication) or snapshot.ledger is None:
        return
    name, topic = replication.quarantine_topic, snapshot.quarantine
    if topic is None:
        _, config = quarantine_created(replication, snapshot.defaults)
        yield from check_created(replication, name, "the quarantine topic", config, snapshot.defaults)
        return
    if topic.problem is not None:
        yield Trouble("error", name, topic.problem.what, topic.problem.remedy)
        return
    yield from check_safety(name, "the quarantine topic", topic.replication_factor, topic.config)
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
