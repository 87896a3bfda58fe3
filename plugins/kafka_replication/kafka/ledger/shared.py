"""One reading of the ledger for the threads of a worker: those that ask at the same time share the requests.

Each thread would otherwise read every entry of all the others by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka.admin import AdminClient

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.client.shared_reads import OfEachAdmin, SharedRead
from kafka_replication.kafka.ledger.reader import PositionsReader, ReceiptsReader
from kafka_replication.ledger.newest import NewestEntry
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.runtime.deadline import NEVER

A = TypeVar("A")
SHORTEST, LONGEST = 0.02, 1.5  # seconds between two questions
STALL = 5.0  # seconds for which one partition may hold up the others
_Place = tuple[int, bytes]  # a ledger partition and a record's key
_Wanted = tuple[PartitionKey, int | None]  # receipts of this key from this offset on


@dataclass(frozen=True, slots=True)
class Found:
    """The newest entry under a key, or None if there is none."""

    entry: NewestEntry | None


class SharedReadings:
    """Answers what can be read at once: no answer is older than its question, and nobody waits here for a transaction
    that hides entries of others, or for a partition that does not answer. Then the answer is None.
    """

    def __init__(self, config: clients.ClientConfig, admin: AdminClient, replication: str) -> None:
        """For one replication."""
        self._positions = PositionsReader(config, admin, replication, NEVER)
        self._receipts = ReceiptsReader(config, admin, replication, NEVER)
        self._positions.stall = self._receipts.stall = STALL
        self._entries: SharedRead[_Place, Found] = SharedRead()
        self._of_keys: SharedRead[_Wanted, Receipts] = SharedRead()

    def entry(self, partition: int, record_key: bytes) -> Found | None:
        return _soon(lambda: self._entries.ask((partition, record_key), self._read_entries))

    def receipts(self, key: PartitionKey, since: int | None) -> Receipts | None:
        return _soon(lambda: self._of_keys.ask((key, since), self._read_receipts))

    def _read_entries(self, places: Set[_Place]) -> Mapping[_Place, Found]:
        with suppress(ReplicationError):  # who asks alone gets an error of its own
            read = self._positions.read_on({partition for partition, _ in places}, self._positions.ends_now)
            return {place: Found(self._positions.known(*place)) for place in places if place[0] in read}
        return {}

    def _read_receipts(self, wanted: Set[_Wanted]) -> Mapping[_Wanted, Receipts]:
        since = dict(wanted)  # who asks twice for a key at the same time gets one answer
        with suppress(ReplicationError):
            found = self._receipts.receipts_now(since)
            return {(key, offset): found for key, offset in since.items() if key in found.since}
        return {}


def _soon(ask: Callable[[], A | None]) -> A | None:
    """The answer, which others that commit may hide for a moment; None after about two seconds."""
    pause = SHORTEST
    while (found := ask()) is None and pause < LONGEST:
        time.sleep(pause)
        pause *= 2
    return found


_readings: OfEachAdmin[dict[str, SharedReadings]] = OfEachAdmin(dict)


def readings(config: clients.ClientConfig, admin: AdminClient, replication: str) -> SharedReadings:
    """The readings of this process for one replication on one cluster."""
    of_cluster = _readings.of(admin)
    return of_cluster.get(replication) or of_cluster.setdefault(replication, SharedReadings(config, admin, replication))
