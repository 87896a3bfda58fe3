"""The part of a ground that is about the ledger, for targets whose ledger is a `Journal`."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import replace

from kafka_replication.targets.journal import Journal, JournalStorage, key_text
from kafka_replication.targets.port import TargetSettings


def of_target(settings: TargetSettings, **changes: object) -> TargetSettings:
    """The settings of a file with other values in ``target``."""
    target = settings.replication.target.model_copy(update=changes)
    return replace(settings, replication=settings.replication.model_copy(update={"target": target}))


class JournalGround(ABC):
    @abstractmethod
    def shelf(self, replication: str) -> JournalStorage: ...

    def journal(self, replication: str) -> Journal:
        return Journal(self.shelf(replication))

    def entries(self, topic: str, partition: int = 0) -> list[bytes | None]:
        tail = self.journal("contract").shelf.head().tail
        return [
            None if record.value is None else record.value.encode()
            for record in tail
            if (record.topic, record.partition) == (topic, partition)
        ]

    def peek(self, topic: str) -> list[bytes | None]:
        return self.entries(topic)

    def put(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        entry = (topic, partition, key_text(key), value.decode())
        self.journal(_replication_of(key)).change(lambda head: head.with_([entry]))


def _replication_of(key: bytes) -> str:
    try:
        return str(json.loads(key)[1])
    except (ValueError, LookupError):
        return "somebody"
