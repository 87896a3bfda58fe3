"""Consumer groups go on at the same place on the target: nothing is skipped, and nothing read again where that was said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from kafka_replication.documents import GroupRow
from kafka_replication.kafka import groups as kafka_groups
from kafka_replication.model import offsets as product
from kafka_replication.reporting.groups import GroupsDocument
from kafka_replication.runs import checking, groups
from tests.support.checker import read
from tests.support.clusters import release_for
from tests.support.scenario import Cluster, Rec, Scenario, numbered
from tests.support.waiting import wait_until

# Brokers have the protocol of KIP-848 since 4.0.
NEW = all(int(release_for(name).version.split(".")[0]) >= 4 for name in ("source", "target"))
PROTOCOLS = ("classic", "consumer") if NEW else ("classic",)


@dataclass
class Member:
    """A consumer group of an application, on either side."""

    group: str
    topic: str
    protocol: str = "classic"

    @contextmanager
    def joined(self, cluster: Cluster) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": self.group,
                "group.protocol": self.protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        try:
            consumer.subscribe([self.topic])
            yield consumer
        finally:
            consumer.close()

    def commit(self, cluster: Cluster, *offsets: int, metadata: str = "") -> None:
        """Of partition 0, 1 and so on; as a consumer that assigns by itself, which is over at once."""
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": self.group, "log_level": 0})
        places = [TopicPartition(self.topic, number, offset, metadata) for number, offset in enumerate(offsets)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def rest(self, cluster: Cluster) -> list[bytes | None]:
        """What it reads from its committed places on, as a member of the group."""
        values, ended = list[bytes | None](), set[int]()
        with self.joined(cluster) as consumer:
            wait_until(lambda: self._take(consumer, values, ended))
        return values

    def _take(self, consumer: Consumer, values: list[bytes | None], ended: set[int]) -> bool:
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                values.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:  # type: ignore[union-attr]
                ended.add(message.partition() or 0)
            else:
                raise AssertionError(message.error())
        assigned = {at.partition for at in consumer.assignment()}
        return bool(assigned) and ended >= assigned

    def places(self, cluster: Cluster) -> dict[int, int]:
        told, _ = kafka_groups.committed(cluster.admin, [self.group])
        return {at.partition: place.offset for at, place in told[self.group].items() if place is not None}


@pytest.fixture
def member(scene: Scenario) -> Member:
    scene.settings |= {"groups": {"include": [f"^{scene.name}"]}}
    return Member(f"{scene.name}-app", scene.topic)


def moved(scene: Scenario, *, apply: bool = True) -> GroupsDocument:
    return groups.move(scene.bare_run("groups"), apply=apply)


def only_row(document: GroupsDocument) -> GroupRow:
    [row] = document.groups
    return row


def values_from(scene: Scenario, offset: int, partition: int = 0) -> list[bytes | None]:
    """What the source has at or behind an offset, read by somebody else."""
    return [record.value for at, record in read(scene.source.bootstrap, scene.topic, partition) if at >= offset]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_moves_it_and_it_reads_on_without_a_hole_or_a_double(
    scene: Scenario, member: Member, protocol: str
) -> None:
    """With transactions, aborted ones and markers; and it goes on when the group has gone on."""
    scene.source.create(scene.topic)
    for number in range(0, 40, 4):
        scene.source.transaction(scene.topic, numbered(4, number), abort=number % 12 == 0)
    member.commit(scene.source, 27, metadata="of the application")
    scene.run(copy={"chunk_records": 9})
    assert member.places(scene.target).keys() == {0}
    [stored] = scene.store.groups(scene.name)
    assert (stored.state, stored.exact, stored.again) == ("moved", 1, 0)
    told, _ = kafka_groups.committed(scene.target.admin, [member.group])
    [place] = told[member.group].values()
    assert place is not None
    assert place.metadata == "of the application"
    member.commit(scene.source, 33)
    assert only_row(moved(scene)).state == "moved"
    member.protocol = protocol
    assert member.rest(scene.target) == values_from(scene, 33)


def test_each_offset_of_a_compacted_topic_is_exact_after_more_compaction(scene: Scenario) -> None:
    """The source has lost records since: only the receipts know where the copies of the others are."""
    scene.settings |= {"groups": {"include": [f"^{scene.name}"]}}
    fast = {"min.cleanable.dirty.ratio": "0.001", "segment.ms": "1000", "max.compaction.lag.ms": "1000"}
    scene.source.create(scene.topic, config={"cleanup.policy": "compact", **fast})
    copied = compacted(scene, 0)
    for first, engine in ((0, "record"), (copied[len(copied) // 2][0], "batch")):
        scene.run(copy={"engine": engine, "chunk_records": 9}, max_records_per_run=max(1, first or copied[30][0]))
    scene.run(copy={"engine": "batch", "chunk_records": 20})
    compacted(scene, 1)
    on_target = {record.value: offset for offset, record in read(scene.target.bootstrap, scene.topic, 0)}
    assert [value for _, value in copied] == list(on_target)
    asked = {f"{scene.name}-{offset}": offset for offset in range(0, copied[-1][0] + 1, 3)}
    for name, offset in asked.items():
        Member(name, scene.topic).commit(scene.source, offset)
    document = moved(scene, apply=False)
    assert {row.group for row in document.groups} == asked.keys()
    for row in document.groups:
        [place] = row.partitions
        before = [on_target[value] for offset, value in copied if offset < asked[row.group]]
        behind = [on_target[value] for offset, value in copied if offset >= asked[row.group]]
        assert (place.again, place.why) == (0, "")
        assert max(before, default=-1) < (place.place or 0) <= min(behind)


def compacted(scene: Scenario, turn: int) -> list[tuple[int, bytes | None]]:
    """Write the same keys again, and wait until each is there once. Segments roll by the times of the records."""
    start = 1_700_000_000_000 + 600_000 * turn
    for part in range(3):
        keys = [b"%d" % (number * number % 71) for number in range(150)]
        values = [Rec(key, b"%d %d %d" % (turn, part, n), (), start + 60_000 * part) for n, key in enumerate(keys)]
        scene.source.produce(scene.topic, values)
    scene.source.produce(scene.topic, [Rec(b"last", b"%d rolls the segment" % turn, (), start + 300_000)])
    left = len({b"%d" % (number * number % 71) for number in range(150)}) + 1 + (turn > 0)

    def found() -> list[tuple[int, bytes | None]]:
        return [(offset, record.value) for offset, record in read(scene.source.bootstrap, scene.topic, 0)]

    wait_until(lambda: len(found()) <= left)
    return found()


def test_records_that_a_filter_drops_are_holes(scene: Scenario, member: Member) -> None:
    scene.settings |= {"filter": "!ends_with(key, '3')"}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    member.commit(scene.source, 54)
    scene.run(copy={"chunk_records": 30})
    row = only_row(moved(scene, apply=False))
    assert (row.exact, row.again) == (1, 0)
    expected = [record.value for record in numbered(100)[54:] if not (record.key or b"").endswith(b"3")]
    assert member.rest(scene.target) == expected


def test_what_is_not_verified_is_read_again_and_said(scene: Scenario, member: Member) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    scene.run()
    scene.source.produce(scene.topic, numbered(30, 50))
    member.commit(scene.source, 70)
    row = only_row(moved(scene))
    assert (row.exact, row.again, row.lag) == (0, 20, 10)
    assert "not verified" in row.partitions[0].why
    scene.run()
    assert member.rest(scene.target) == values_from(scene, 70)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_with_members_on_the_target_is_left_alone(scene: Scenario, member: Member, protocol: str) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    member.commit(scene.source, 5)
    scene.run()
    member.commit(scene.source, 15)
    member.protocol = protocol
    with member.joined(scene.target) as consumer:
        wait_until(lambda: consumer.poll(0.2) is not None and bool(consumer.assignment()))
        assert only_row(moved(scene)).state == "active"
        assert member.places(scene.target) == {0: 5}
    wait_until(lambda: only_row(moved(scene)).state == "moved")
    assert member.places(scene.target) == {0: 15}


def test_a_place_never_goes_back(scene: Scenario, member: Member) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    member.commit(scene.source, 12)
    scene.run()
    member.commit(scene.source, 4)
    row = only_row(moved(scene))
    assert (row.state, row.partitions[0].state) == ("in step", "ahead")
    assert member.places(scene.target) == {0: 12}


def test_a_place_is_written_again_after_a_day_unless_the_group_has_passed_it(scene: Scenario, member: Member) -> None:
    """Brokers forget a group that nobody uses. One that goes on on the target is left alone, and looked at once."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    member.commit(scene.source, 12)
    scene.run()

    def a_day_later() -> GroupRow:
        rows = [replace(row, moved_at="2020-01-01T00:00:00.000Z") for row in scene.store.groups(scene.name)]
        scene.store.record_groups(scene.name, rows)
        return only_row(moved(scene))

    row = a_day_later()
    assert row.state == "moved" and row.moved_at > "2020-01-02"
    member.commit(scene.target, 15)
    row = a_day_later()
    assert (row.state, row.moved_at) == ("in step", "2020-01-01T00:00:00.000Z")
    assert member.places(scene.target) == {0: 15}


def test_a_group_of_which_nothing_can_be_moved_has_failed(scene: Scenario, member: Member) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    member.commit(scene.source, 12)
    row = only_row(moved(scene))
    assert (row.state, row.why) == ("failed", "nothing of this partition was copied yet")


def test_it_is_idle_where_nothing_has_moved(scene: Scenario, member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(20))
    member.commit(scene.source, 12)  # never a partition without a committed offset
    scene.run()
    assert member.places(scene.target) == {0: 12}

    def reads(*_: Any) -> None:
        raise AssertionError("reads the receipts")

    run = scene.bare_run("groups")
    monkeypatch.setattr(type(run.clusters.ledger), "receipts", reads)
    assert only_row(groups.move(run, apply=True)).state == "in step"
    monkeypatch.undo()
    at = product.TopicPartition(scene.topic, 0)
    scene.target.admin.delete_consumer_groups([member.group])[member.group].result(30)
    assert only_row(moved(scene)).state == "moved"
    assert member.places(scene.target) == {at.partition: 12}


def test_groups_of_other_kinds_and_names_are_named(scene: Scenario, member: Member) -> None:
    """An application of Kafka Streams is known by its topics; a name that nobody has by the list."""
    scene.settings |= {"groups": {"include": [f"^{scene.name}", "nobody"]}}
    scene.source.create(scene.topic)
    scene.source.create(f"{scene.name}-streams-KTABLE-1-changelog")
    scene.source.produce(scene.topic, numbered(5))
    member.commit(scene.source, 2)
    Member(f"{scene.name}-streams", scene.topic).commit(scene.source, 3)
    scene.run()
    document = moved(scene)
    states = {row.group: row.state for row in document.groups}
    assert states == {member.group: "in step", f"{scene.name}-streams": "left out"}
    assert ["nobody" in problem for problem in document.problems] == [True]
    found = [finding.text for finding in checking.check(scene.bare_run("check")).findings]
    assert any("Kafka Streams" in text for text in found)
    assert any("nobody" in text for text in found)


def test_an_open_transaction_of_the_group_is_waited_for(scene: Scenario, member: Member) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    member.commit(scene.source, 2)
    scene.run()
    producer = scene.source.transactional()
    producer.begin_transaction()
    with member.joined(scene.source) as consumer:
        wait_until(lambda: consumer.poll(0.2) is not None and bool(consumer.assignment()))
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(scene.topic, 0, 9)], metadata)
        assert [place.state for place in only_row(moved(scene)).partitions] == ["waiting"]
        producer.commit_transaction(30)
        wait_until(lambda: member.places(scene.source) == {0: 9})
    moved(scene)
    assert member.places(scene.target) == {0: 9}


def test_many_partitions_and_renames(scene: Scenario, member: Member) -> None:
    scene.settings |= {"topics": {"include": [scene.topic], "rename": "dr.{topic}"}}
    scene.source.create(scene.topic, 4)
    for number in range(4):
        scene.source.produce(scene.topic, numbered(10 * (number + 1), 100 * number), number)
    offsets: Sequence[int] = (3, 20, 0, 17)
    member.commit(scene.source, *offsets)
    scene.run()
    assert member.places(scene.target) == dict(enumerate(offsets))
    member.topic = f"dr.{scene.topic}"
    expected = [value for number, offset in enumerate(offsets) for value in values_from(scene, offset, number)]
    assert sorted(member.rest(scene.target), key=bytes) == sorted(expected, key=bytes)  # type: ignore[arg-type]
