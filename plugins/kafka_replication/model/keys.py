"""Whose position, receipt, lease or watermark something is, and the names derived from that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import xxhash

from kafka_replication.model.offsets import TopicPartition

LEDGER_PARTITIONS = 16
PREFIX = "kafka-replication"


def consumer_group(replication: str) -> str:
    """The group that consumers name; they are assigned and commit nothing, but brokers ask for the right to it."""
    return f"{PREFIX}/{replication}"


def opening_id(replication: str) -> str:
    """The transactional id that commits where new partitions begin."""
    return f"{PREFIX}/{replication}/opening"


def dump(value: Any) -> bytes:
    """Canonical JSON: sorted keys, no blanks, UTF-8; equal values give equal bytes, in every release."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True, order=True)
class PartitionKey:
    """Whose position it is; stable over runs, ranges and attempts, and the name of one transactional id."""

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
        """A slash is in no name, so that no two keys share an id."""
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
