"""Every implementation of the ledger passes every check, and each broken one fails the check that is about its fault."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka import offsets
from kafka_replication.kafka.ledger import Found, KafkaLedger, SharedReadings
from kafka_replication.kafka.ledger_reader import PositionsReader, TopicReader
from kafka_replication.kafka.target import KafkaTarget
from kafka_replication.ledger.view import LedgerView, NewestEntries
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.targets.port import TargetSettings
from tests.conformance import ledger as checks
from tests.conformance.ground import Ground
from tests.conformance.ledger_world import World
from tests.contract.kafka_ground import KafkaGround
from tests.support.scenario import Cluster


@pytest.fixture(scope="module")
def ground(kafka_sides: tuple[Cluster, Cluster]) -> KafkaGround:
    return KafkaGround(kafka_sides[1])


class OfAWorker(KafkaTarget):
    """Its threads share one reading of the ledger. This one has read before, and others have written since."""

    def __init__(self, settings: TargetSettings, deadline: Deadline = NEVER) -> None:
        super().__init__(replace(settings, shared=True), deadline)


@pytest.fixture(scope="module")
def shared_ground(kafka_sides: tuple[Cluster, Cluster]) -> KafkaGround:
    return KafkaGround(kafka_sides[1], OfAWorker)


def world_of(ground: Ground) -> World:
    world = World(ground)
    world.ledger().ensure(world.replication())
    return world


@pytest.mark.parametrize("check", checks.ALL.values(), ids=checks.ALL)
def test_ledger(check: Callable[[World], None], ground: KafkaGround) -> None:
    check(world_of(ground))


@pytest.mark.parametrize("check", checks.ALL.values(), ids=checks.ALL)
def test_a_ledger_of_a_worker(check: Callable[[World], None], shared_ground: KafkaGround) -> None:
    check(world_of(shared_ground))


def not_looking_whether_anything_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown_logs(admin: AdminClient, places: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, None]]:
        return {place: (end, None) for place, end in offsets.last_stable(admin, places).items()}

    monkeypatch.setattr(offsets, "shown_logs", shown_logs)


def answering_before_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer for a key is taken for the truth for ever."""
    ask, answers = SharedReadings.entry, dict[tuple[int, bytes], Found | None]()

    def stale(self: SharedReadings, partition: int, record_key: bytes) -> Found | None:
        return answers.setdefault((partition, record_key), ask(self, partition, record_key))

    monkeypatch.setattr(SharedReadings, "entry", stale)


BROKEN_WHERE_SHARED = {
    "not looking": (not_looking_whether_anything_is_hidden, checks.nothing_is_hidden_by_an_open_transaction),
    "answering before": (answering_before_it_was_asked, checks.the_newest_committed_entry_counts),
}


@pytest.mark.parametrize(("break_it", "check"), BROKEN_WHERE_SHARED.values(), ids=BROKEN_WHERE_SHARED)
def test_a_broken_ledger_of_a_worker_fails(
    break_it: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[World], None],
    shared_ground: KafkaGround,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_of(shared_ground)
    break_it(monkeypatch)
    with pytest.raises(AssertionError):
        check(world)


def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads up to the last stable offset of this moment."""

    def ends(self: TopicReader, partitions: Collection[int]) -> Mapping[int, int]:
        at = [TopicPartition(self.topic, partition) for partition in partitions]
        return {place.partition: end for place, end in offsets.last_stable(self._admin, at).items()}

    monkeypatch.setattr(TopicReader, "ends", ends)


def reading_uncommitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicReader, "read", TopicReader.read_uncommitted)


def keeping_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came first stays."""
    add = NewestEntries.add

    def add_once(
        self: NewestEntries, topic: str, partition: int, offset: int, record_key: bytes, value: bytes | None
    ) -> None:
        if self.get(partition, record_key) is None:
            add(self, topic, partition, offset, record_key, value)

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
    ground: KafkaGround,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_of(ground)
    break_it(monkeypatch)
    with pytest.raises(AssertionError):
        check(world)
