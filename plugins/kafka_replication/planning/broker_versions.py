"""The findings about brokers that are too old for something, from the requests that they take. Pure.

A release of Kafka is not asked for, because brokers do not tell theirs: only the newest version of each request that
they understand (ApiVersions). What they understand says nothing about the format in which they store what is
(``inter.broker.protocol.version``): `kafka.topics` finds out that a topic has no id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_replication.model.trouble import Severity, Trouble

NO_IDS: Final = "a topic that is deleted and created again would be taken for the one that was copied"
GIVES_IDS: Final = "run brokers of Kafka 2.8 or newer, with inter.broker.protocol.version 2.8 or newer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A request that something needs, by its number and version in Kafka's protocol, and the first release with it."""

    request: int
    version: int
    since: str
    severity: Severity
    without: str
    remedy: str


NEEDS: Final = (
    Need(
        request=3,  # Metadata
        version=10,
        since="2.8",
        severity="error",
        without=f"topics have no ids (KIP-516): {NO_IDS}",
        remedy=GIVES_IDS,
    ),
    Need(
        request=65,  # DescribeTransactions
        version=0,
        since="3.0",
        severity="warning",
        without="whose transaction hides records cannot be asked (KIP-664): it is not named, and a commit of ours that"
        " brokers completed in part is not mended",
        remedy="nothing is lost or doubled: runs wait, and say for which offset; kafka-transactions.sh needs 3.0, too",
    ),
)


_QUORUM: Final = 55  # DescribeQuorum, which brokers with ZooKeeper do not take


def findings(where: str, newest: Mapping[int, int], remedies: Collection[str] = ()) -> Iterator[Trouble]:
    """The findings about a cluster. ``newest`` is the newest version of each request that all of its brokers take,
    ``remedies`` are those of the findings about rights.
    """
    for need in NEEDS:
        if newest.get(need.request, -1) < need.version:
            what = f"its brokers are older than Kafka {need.since}: {need.without}"
            yield Trouble(need.severity, where, what, need.remedy)
    if _QUORUM not in newest and any(" kafka-replication/" in remedy for remedy in remedies):
        yield Trouble(
            "warning",
            where,
            "it has ZooKeeper, which stores no rule whose name has a slash: kafka-acls.sh ends with an unknown error",
            "grant what comes before the slash: --group kafka-replication --resource-pattern-type prefixed, and the"
            " same with --transactional-id",
        )
