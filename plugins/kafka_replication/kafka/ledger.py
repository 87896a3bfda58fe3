"""`ledger.port.Ledger` on the target's two topics.

One reading of the ledger for the threads of a worker: those that ask at the same time share the requests.

Each thread would otherwise read every entry of all the others by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar

from confluent_kafka.admin import AdminClient

from kafka_replication.config import Replication
from kafka_replication.kafka import brokers, clients, ledger_reader, ledger_topics, offsets
from kafka_replication.kafka.consumer_pool import OfEachAdmin, SharedRead
from kafka_replication.kafka.ledger_reader import ALL, LONGEST_TRANSACTION, PositionsReader, ReadEntries, ReceiptsReader
from kafka_replication.ledger import writing
from kafka_replication.ledger.codec import position_key, verified_key
from kafka_replication.ledger.entries import RECEIPTS, Entry, Position, Receipt, Verified
from kafka_replication.ledger.port import TransactionPort
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import LedgerView, NewestEntry
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.model.rights import ClusterName
from kafka_replication.runtime.deadline import NEVER, Deadline

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


class KafkaLedger:
    """The ledger of one replication. The first view reads the positions topic; later views read only new entries.

    ``read_before`` makes it a follower, see `follower`. ``patience`` is for how many seconds it waits for a transaction
    that hides entries. ``shared`` is asked first: it answers several threads at a time.
    """

    def __init__(
        self,
        config: clients.ClientConfig,
        admin: AdminClient,
        replication: str,
        deadline: Deadline = NEVER,
        read_before: ReadEntries | None = None,
        patience: float = LONGEST_TRANSACTION,
        shared: SharedReadings | None = None,
    ) -> None:
        self._shared = shared
        self._admin, self._cluster = admin, ClusterName(str(config["bootstrap.servers"]), "target")
        self._positions = PositionsReader(config, admin, replication, deadline, read_before, patience)
        self._receipts = ReceiptsReader(config, admin, replication, deadline, read_before is None, patience)
        self._exists = bool(read_before and read_before.topic_id)
        self._follow = partial(KafkaLedger, config, replication=replication)

    def follower(self) -> Callable[[AdminClient], KafkaLedger]:
        """Makes another reader of this ledger, for another thread, which begins with what this one has read.

        It never waits for an open transaction: it may miss an entry that was committed while an earlier transaction was
        open, and finds it later. It is for showing progress, not for deciding anything.
        """
        return partial(self._follow, read_before=self._positions.read_entries())

    def exists(self) -> bool:
        """True if the topics exist. The brokers are asked until they do."""
        self._exists = self._exists or len(ledger_topics.existing(self._admin)) == 2
        return self._exists

    def ensure(self, replication: Replication) -> None:
        if not self._exists:
            ledger_topics.create_missing(self._admin, replication)
            self._exists = True

    def view(self) -> LedgerView:
        if not self.exists():
            return LedgerView()
        return self._positions.entries().view()

    def position(self, key: PartitionKey) -> Position | None:
        newest = self._newest(key.ledger_partition, position_key(key))
        entry = newest.entry() if newest else None
        assert entry is None or isinstance(entry, Position)
        return entry

    def verified(self, key: PartitionKey) -> Verified | None:
        newest = self._newest(key.ledger_partition, verified_key(key))
        entry = newest.entry() if newest else None
        assert entry is None or isinstance(entry, Verified)
        return entry

    def _newest(self, partition: int, record_key: bytes) -> NewestEntry | None:
        if self._shared is not None and (found := self._shared.entry(partition, record_key)) is not None:
            return found.entry
        return self._positions.entry(partition, record_key)

    def receipts(self, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        if self._shared is not None and len(wanted) == 1:
            (asked,) = wanted.items()
            if (found := self._shared.receipts(*asked)) is not None:
                return found
        return self._receipts.receipts(wanted)

    def receipt_ends(self) -> Mapping[int, int]:
        if not self.exists():
            return dict.fromkeys(ALL, 0)
        stable = offsets.last_stable(self._admin, [TopicPartition(RECEIPTS, partition) for partition in ALL])
        return {at.partition: offset for at, offset in stable.items()}

    def undecided(self) -> set[PartitionKey]:
        return {newest.key for newest in self._undecided()}

    def undecided_entries(self) -> list[tuple[PartitionKey, Entry]]:
        return [(newest.key, newest.entry()) for newest in self._undecided()]

    def _undecided(self) -> Iterator[NewestEntry]:
        if self.exists() and (hidden := ledger_reader.hidden(self._admin)):
            yield from chain(self._positions.undecided(hidden), self._receipts.undecided(hidden))

    def hidden(self) -> Mapping[TopicPartition, int]:
        return {at: there.from_ for at, there in ledger_reader.hidden(self._admin).items()} if self.exists() else {}

    def hidden_by(self, at: TopicPartition) -> str:
        return brokers.named(self._admin, at)

    def obstacle(self) -> ReplicationError | None:
        return ledger_topics.obstacle(self._admin, self._cluster)

    def write(self, transaction: TransactionPort, key: PartitionKey, entry: Entry) -> None:
        writing.write(transaction, key, entry)

    def delete(self, transaction: TransactionPort, key: PartitionKey, receipt: Receipt) -> None:
        writing.delete(transaction, key, receipt)

    def expire(self, may_go: Callable[[PartitionKey, Receipt], bool]) -> int:  # noqa: ARG002
        return 0  # the broker does, by the topic's retention.ms
