"""Every implementation of the ledger passes every check, and each broken one fails the check that is about its fault."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.kafka.ledger.newest import NewestEntries
from kafka_replication.kafka.ledger.reader import PositionsReader, TopicReader
from kafka_replication.kafka.metadata import offsets
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runtime.deadline import Deadline
from stack.kafka_cluster import KafkaCluster
from tests.contract.ledger import checks
from tests.contract.ledger.world import World

IMPLEMENTATIONS = {"kafka": KafkaLedger}


@pytest.fixture(scope="module")
def admin(target_cluster: KafkaCluster) -> AdminClient:
    return clients.admin({"bootstrap.servers": target_cluster.bootstrap})


def world_of(kind: type[KafkaLedger], cluster: KafkaCluster, admin: AdminClient) -> World:
    config = {"bootstrap.servers": cluster.bootstrap}

    def make(replication: str, deadline: Deadline) -> KafkaLedger:
        return kind(config, admin, replication, deadline)

    world = World(cluster.bootstrap, make)
    world.ledger().ensure(world.replication())
    return world


@pytest.mark.parametrize("check", checks.ALL.values(), ids=checks.ALL)
@pytest.mark.parametrize("kind", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
def test_ledger(
    kind: type[KafkaLedger], check: Callable[[World], None], target_cluster: KafkaCluster, admin: AdminClient
) -> None:
    check(world_of(kind, target_cluster, admin))


def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads up to the last stable offset of this moment."""

    def bounds(self: TopicReader, partitions: Collection[int]) -> Mapping[int, OffsetRange]:
        at = [TopicPartition(self.topic, partition) for partition in partitions]
        ends = offsets.last_stable(self._admin, at)
        return {place.partition: OffsetRange(0, ends[place]) for place in at}

    monkeypatch.setattr(TopicReader, "bounds", bounds)


def reading_uncommitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicReader, "read", TopicReader.read_uncommitted)


def keeping_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came first stays."""
    add = NewestEntries.add

    def add_once(self: NewestEntries, message: Message) -> None:
        if self.get(message.partition() or 0, message.key() or b"") is None:
            add(self, message)

    monkeypatch.setattr(NewestEntries, "add", add_once)


def never_reading_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first view is taken for the truth for ever."""
    view, views = KafkaLedger.view, dict[int, LedgerView]()

    def stale(self: KafkaLedger) -> LedgerView:
        return views.setdefault(id(self), view(self))

    monkeypatch.setattr(KafkaLedger, "view", stale)


def missing_an_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads on one offset too late."""
    read = PositionsReader.read

    def late(self: PositionsReader, ranges: Mapping[int, OffsetRange]) -> Iterator[Message]:
        """Who begins reads from the start of the log, which is 0."""
        return read(
            self,
            {
                partition: OffsetRange(min(there.from_ + (there.from_ > 0), there.until), there.until)
                for partition, there in ranges.items()
            },
        )

    monkeypatch.setattr(PositionsReader, "read", late)


BROKEN = {
    "no waiting": (no_waiting, checks.nothing_is_hidden_by_an_open_transaction),
    "reading uncommitted": (reading_uncommitted, checks.aborted_entries_are_never_seen),
    "keeping the oldest": (keeping_the_oldest, checks.the_newest_committed_entry_counts),
    "never reading on": (never_reading_on, checks.the_newest_committed_entry_counts),
    "missing an offset": (missing_an_offset, checks.reading_on_is_reading_from_the_start),
}


@pytest.mark.parametrize(("break_it", "check"), BROKEN.values(), ids=BROKEN)
def test_a_broken_ledger_fails(
    break_it: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[World], None],
    target_cluster: KafkaCluster,
    admin: AdminClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_of(KafkaLedger, target_cluster, admin)
    break_it(monkeypatch)
    with pytest.raises(AssertionError):
        check(world)
