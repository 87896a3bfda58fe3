"""Commands that errors name as their remedy."""

from __future__ import annotations

import re
import shlex
from typing import Any

from kafka_replication.model.offsets import OffsetRange, PartitionKey


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


def failed_list(replication: str) -> str:
    """The command that lists the records that could not be copied."""
    return f"kafka-replication failed list {replication}.yaml"


def on_lines(told: str) -> str:
    """The same remedy with each command on a line of its own, to be pasted. A command ends at a semicolon."""
    return re.sub(r" (kafka-replication [a-z -]+ \S+\.yaml[^;]*)(; )?", r"\n    \1\n  ", told).rstrip()


def with_file(told: Any, replication: str, file: str) -> Any:
    """The same text, or document with texts, whose commands for this replication name this file, which was read.

    What makes such a command knows the replication alone, and calls the file as it is called by custom.
    """
    if isinstance(told, str):
        named = re.compile(rf"(?<=kafka-replication )([a-z -]+) {re.escape(replication)}\.yaml(?=[\s;']|$)")
        return named.sub(lambda command: f"{command[1]} {shlex.quote(file)}", told)
    if isinstance(told, dict):
        return {key: with_file(value, replication, file) for key, value in told.items()}
    if isinstance(told, list):
        return [with_file(value, replication, file) for value in told]
    return told
