"""Target topics as Airflow's assets: each has an event when, and only when, a run has verified its ranges.

An asset among a task's outlets would have an event whenever the task succeeds, also for a run that copied nothing of
its topic. So the report task has one alias, and adds the topics that were verified. A task that fails has no events.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

from kafka_replication.config import Replication

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_replication.reporting.run.report import RunReport
    from kafka_replication.reporting.run.verified_topics import VerifiedTopic

OTHER_KIND: Final = "x-kafka-replication"  # the scheme for a kind of target that somebody else wrote


def alias_of(replication: Replication) -> AssetAlias:
    """The alias of all target topics of a replication; its name is that of the replication."""
    return AssetAlias(name=replication.name, group="kafka-replication")


def asset_of(replication: Replication, target_topic: str) -> Asset:
    """The asset of one target topic: ``kafka://CONNECTION/TOPIC``. The connection's id stands for the cluster, because
    a DAG file knows no address, and an asset must not change its name when a broker does.
    """
    kind = replication.target.type
    scheme = OTHER_KIND if ":" in kind else kind
    uri = f"{scheme}://{quote(replication.target.connection, safe='')}/{quote(target_topic, safe='')}"
    return Asset(name=uri, uri=uri, group="kafka-replication")


def announce(context: Context, replication: Replication, report: RunReport, verified: Iterable[VerifiedTopic]) -> None:
    """Let each of these topics have an event once the task has succeeded."""
    events = context["outlet_events"][alias_of(replication)]
    for topic in verified:
        events.add(asset_of(replication, topic.topic), extra=topic.extra(report))
