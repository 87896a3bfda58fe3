"""Finds target topics that can lose acknowledged records: existing ones, and those that are about to be created."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafka_replication.config import Replication
from kafka_replication.planning.findings import Finding
from kafka_replication.planning.snapshot import Topic, TopicDefaults

REMEDY = "use 3 replicas, min.insync.replicas=2 and no unclean election"
_CHECKED = ("min.insync.replicas", "unclean.leader.election.enable")


def check_existing(where: str, what: str, topic: Topic) -> Iterator[Finding]:
    """Findings about an existing topic. ``what`` is its name in the findings, as in "the target"."""
    yield from _judge(where, what, topic.replication_factor, topic.config)


def check_created(
    replication: Replication, where: str, what: str, config: Mapping[str, str], defaults: TopicDefaults | None
) -> Iterator[Finding]:
    """Findings about a topic that this run will create with ``config``. The brokers' ``defaults`` give the other
    settings.
    """
    factor = replication.target_topics.replication_factor or (defaults.replication_factor if defaults else None)
    expected = {**(defaults.config if defaults else {}), **config}
    unknown = [name for name in _CHECKED if name not in expected] + ["the replication factor"] * (factor is None)
    if unknown:
        yield Finding(
            "warning",
            where,
            f"{what} is about to be created, and {', '.join(unknown)} that it will get cannot be read from the brokers",
            "grant DescribeConfigs on the target cluster, or set target_topics.replication_factor and"
            f" target_topics.config ({', '.join(_CHECKED)})",
        )
        return
    yield from _judge(where, f"{what} to be created", factor or 0, expected)


def _judge(where: str, what: str, factor: int, config: Mapping[str, str]) -> Iterator[Finding]:
    if factor < 2:
        yield Finding("warning", where, f"{what} has replication factor {factor}: one lost disk loses it", REMEDY)
    elif int(config.get("min.insync.replicas", 1)) < 2:
        yield Finding("warning", where, f"{what} acknowledges with one replica (min.insync.replicas=1)", REMEDY)
    if config.get("unclean.leader.election.enable") == "true":
        yield Finding(
            "warning", where, f"{what} allows unclean leader election: acknowledged records can vanish", REMEDY
        )
