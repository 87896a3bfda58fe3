"""Commands that errors name as their remedy."""

from __future__ import annotations

from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange


def approve_gap(key: PartitionKey, gap: OffsetRange) -> str:
    """The command that approves exactly this gap."""
    at = key.source
    return (
        f"kafka-replication approve-gap {key.replication}.yaml --topic {at.topic} --partition {at.partition} "
        f'--from {gap.from_} --until {gap.until} --target-topic {key.target_topic} --reason "..."'
    )


def backfill(key: PartitionKey, offsets: OffsetRange) -> str:
    """The command that copies those of these offsets that are not on the target."""
    at = key.source
    return (
        f"kafka-replication backfill {key.replication}.yaml --topic {at.topic} --partition {at.partition} "
        f"--from {offsets.from_} --until {offsets.until} --target-topic {key.target_topic}"
    )
