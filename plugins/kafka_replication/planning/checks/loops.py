"""Finds two replications that feed each other: the ledger on the source cluster has the other one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafka_replication.config import Replication
from kafka_replication.config.values.names import PROVENANCE
from kafka_replication.ledger.entries import Position
from kafka_replication.model.keys import PartitionKey
from kafka_replication.planning.findings import Finding


def loops(
    replication: Replication, target_cluster: str, on_source: Mapping[PartitionKey, Position]
) -> Iterator[Finding]:
    """A warning for each source topic that another replication fills from the same topic to which this one copies.

    Its records circulate for ever unless each direction leaves out the records that came from its target. ``on_source``
    are the positions of replications that write to the source cluster.
    """
    marked, excluded = PROVENANCE in replication.transform, target_cluster in replication.topics.exclude_from
    if marked and excluded:
        return
    missing = ["transform: provenance"] * (not marked)
    missing += [f"topics.exclude_from: [{target_cluster}]"] * (not excluded)
    back = {
        (key.target_topic, key.source.topic): key.replication
        for key, position in on_source.items()
        if position.ids.source_cluster == target_cluster
    }
    for (here, there), other in sorted(back.items()):
        if replication.selects(here) and replication.target_name(here) == there:
            yield Finding(
                "warning",
                f"{here} -> {there}",
                f"the replication {other} copies {there} back to {here}: records go round for ever",
                f"set {' and '.join(missing)}; in the other direction, too, with the id of this source",
                topic=here,
            )
