"""The key of a position, receipt or watermark, and the names derived from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import xxhash

from kafka_replication.model.offsets import TopicPartition

LEDGER_PARTITIONS = 16
PREFIX = "kafka-replication"


def consumer_group(replication: str) -> str:
    """The consumers' group id. They commit nothing to the group, but brokers require the right to read it."""
    return f"{PREFIX}/{replication}"


def opening_id(replication: str) -> str:
    """The transactional id that commits the start offsets of new partitions."""
    return f"{PREFIX}/{replication}/opening"


def verified_id(replication: str) -> str:
    """The transactional id that commits what is verified."""
    return f"{PREFIX}/{replication}/verified"


def check_id(replication: str) -> str:
    """The transactional id that only asks whether the replication may use ids of its prefix. It never has a record."""
    return f"{PREFIX}/{replication}/check"


def replication_of(transactional_id: str) -> str:
    """The replication whose transactional id this is; empty if it is none of ours."""
    parts = transactional_id.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == PREFIX else ""


def transactional_prefix(replication: str) -> str:
    """The beginning of every transactional id of the replication."""
    return f"{PREFIX}/{replication}/"


def dump(value: Any) -> bytes:
    """Canonical JSON: sorted keys, no blanks, UTF-8. Equal values give equal bytes in every release."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True, order=True)
class PartitionKey:
    """Identifies one copied partition, across runs, ranges and attempts. It has one transactional id."""

    replication: str
    source: TopicPartition
    target_topic: str

    def __str__(self) -> str:
        return f"{self.replication}: {self.source} -> {self.target_topic}"

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.target_topic, self.source.partition)

    @property
    def transactional_id(self) -> str:
        """Unique for each key, because no name contains a slash."""
        return f"{PREFIX}/{self.replication}/{self.source.topic}/{self.source.partition}/{self.target_topic}"

    @property
    def ledger_partition(self) -> int:
        """The partition of both ledger topics that holds this key's entries: xxh32 of the key, stable for ever."""
        return int(xxhash.xxh32_intdigest(dump(self._parts())) % LEDGER_PARTITIONS)

    def _parts(self) -> list[str | int]:
        return [self.replication, self.source.topic, self.source.partition, self.target_topic]

    def entry(self, kind: str, *more: int) -> bytes:
        """The record key of an entry: ``[kind, replication, source topic, source partition, target topic, ...]``."""
        return dump([kind, *self._parts(), *more])
