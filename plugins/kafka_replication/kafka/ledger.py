"""The ledger on the target's two topics.

One reading of the ledger for the threads of a worker: those that ask at the same time share the requests.

Each thread would otherwise read every entry of all the others by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AclOperation,
    AdminClient,
    TopicDescription,
)

from kafka_replication.config import Replication
from kafka_replication.kafka import brokers, clients, ledger_reader, offsets, topics
from kafka_replication.kafka.consumer_pool import OfEachAdmin, SharedRead
from kafka_replication.kafka.ledger_reader import ALL, LONGEST_TRANSACTION, PositionsReader, ReadEntries, ReceiptsReader
from kafka_replication.kafka.snapshotter import topic_defaults
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS, Entry, Position, Verified
from kafka_replication.ledger.port import Ledger
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.values import LedgerEntry
from kafka_replication.ledger.view import LedgerView, NewestEntry
from kafka_replication.model.errors import NotAuthorized, Refused, ReplicationError, Unreachable
from kafka_replication.model.offsets import LEDGER_PARTITIONS, PartitionKey, TopicPartition
from kafka_replication.model.rights import ClusterName, Operation, Resource, Right
from kafka_replication.planning.topic_settings import POLICIES, ledger_created
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.targets.port import ToCreate


def create_missing(admin: AdminClient, replication: Replication) -> None:
    """Create the topics that are missing, and check both.

    Receipts are created first: positions without receipts mean that the receipts were deleted.
    Raises Refused.
    """
    missing = [name for name in (RECEIPTS, POSITIONS) if name not in existing(admin)]
    defaults = topic_defaults(admin) if missing else None
    for name in missing:
        factor, config = ledger_created(name, replication, defaults)
        wanted = ToCreate(name=name, partitions=LEDGER_PARTITIONS, replication_factor=factor, config=config)
        topics.create(admin, wanted)
    if missing:
        existing(admin)


def existing(admin: AdminClient) -> Collection[str]:
    """The ledger topics that exist. Raises Refused if one has wrong settings: with another cleanup policy entries would
    be deleted, and with another number of partitions they would be searched for in the wrong partition.
    """
    there = topics.states(admin, [POSITIONS, RECEIPTS])
    settings, unreadable = topics.configs(admin, there)
    for error in unreadable.values():
        raise error
    if POSITIONS in there and RECEIPTS not in there:
        raise Refused(
            f"the ledger topic {RECEIPTS} is gone from the target, while {POSITIONS} is there: the audit trail was"
            " deleted",
            f"restore it; or create it empty (cleanup.policy=compact,delete, {LEDGER_PARTITIONS} partitions); ranges"
            " that are not verified yet can then never be verified",
        )
    for name, topic in there.items():
        wrong = list(_wrong(name, len(topic.partitions), settings[name]))
        if wrong:
            raise Refused(
                f"the ledger topic {name} on the target has {'; '.join(wrong)}",
                "set it to that value, or restore the topic",
            )
    return there


def _wrong(name: str, partitions: int, config: Mapping[str, str]) -> Iterator[str]:
    policy, unclean = config.get("cleanup.policy"), config.get("unclean.leader.election.enable")
    if policy not in POLICIES[name]:
        yield f"cleanup.policy={policy}, not {POLICIES[name][0]}"
    if unclean != "false":
        yield f"unclean.leader.election.enable={unclean}, not false"
    if partitions != LEDGER_PARTITIONS:
        yield f"{partitions} partitions, not {LEDGER_PARTITIONS}"


def obstacle(admin: AdminClient, cluster: ClusterName) -> ReplicationError | None:
    """NotAuthorized if a right is missing, Unreachable if too few replicas are in sync, None if nothing is known.

    Raises Unreachable if the topics cannot be described.
    """
    described = topics.descriptions(admin, [POSITIONS, RECEIPTS], rights=True)
    settings, _ = topics.configs(admin, described)  # without the right to read them, one replica in sync is enough
    for name, topic in described.items():
        operations = topic.authorized_operations or [AclOperation.ALL]  # None: the brokers do not say
        if not {AclOperation.WRITE, AclOperation.ALL} & set(operations):
            missing = Right(side="target", operation=Operation.WRITE, resource=Resource.TOPIC, name=name)
            return NotAuthorized.of(missing, cluster, doing="the ledger cannot be written")
        wanted = int(settings.get(name, {}).get("min.insync.replicas", 1))
        if short := list(_short(topic, wanted)):
            return Unreachable(
                f"the ledger topic {name} takes no records: {'; '.join(short[:3])}"
                + (f"; and {len(short) - 3} other partitions" if len(short) > 3 else ""),
                "start the brokers that are down, look for a full disk; or correct min.insync.replicas of the topic",
            )
    return None


def _short(topic: TopicDescription, wanted: int) -> Iterator[str]:
    """The partitions with fewer replicas in sync than a producer with acks=all needs. One without a leader cannot even
    be read, which `KafkaLedger.view` says. Since KIP-966 brokers never ask for more replicas than there are.
    """
    for partition in topic.partitions:
        if len(partition.isr) < min(wanted, len(partition.replicas)):
            in_sync = f"{len(partition.isr)} replica{'s' if len(partition.isr) != 1 else ''} in sync"
            yield f"partition {partition.id} has {in_sync}, and min.insync.replicas is {wanted}"


A = TypeVar("A")
E = TypeVar("E", bound=LedgerEntry)
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


class KafkaLedger(Ledger):
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
        self._exists = self._exists or len(existing(self._admin)) == 2
        return self._exists

    def ensure(self, replication: Replication) -> None:
        if not self._exists:
            create_missing(self._admin, replication)
            self._exists = True

    def view(self) -> LedgerView:
        if not self.exists():
            return LedgerView()
        return self._positions.entries().view()

    def position(self, key: PartitionKey) -> Position | None:
        return self._newest(Position, key)

    def verified(self, key: PartitionKey) -> Verified | None:
        return self._newest(Verified, key)

    def _newest(self, kind: type[E], key: PartitionKey) -> E | None:
        place = key.ledger_partition, key.entry(kind.KIND)
        found = self._shared.entry(*place) if self._shared is not None else None
        newest = self._positions.entry(*place) if found is None else found.entry
        entry = newest.entry() if newest else None
        assert entry is None or isinstance(entry, kind)
        return entry

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
        return obstacle(self._admin, self._cluster)
