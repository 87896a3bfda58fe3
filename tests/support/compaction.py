"""Compaction that does not let a test wait."""

from __future__ import annotations

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.support.scenario import Cluster


def clean_every(cluster: Cluster, ms: int) -> None:
    """How often the brokers look for something to compact; every 15 s if nobody asks for more."""
    option = ConfigEntry("log.cleaner.backoff.ms", str(ms), incremental_operation=AlterConfigOpType.SET)
    brokers = cluster.admin.list_topics(timeout=30).brokers
    asked = [ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[option]) for number in brokers]
    for done in cluster.admin.incremental_alter_configs(asked).values():
        done.result(30)
