"""Two keys that one quarantine cannot tell by the number of their partition there."""

from __future__ import annotations

from collections.abc import Callable

from kafka_replication.config.sections import Failures
from kafka_replication.copying.sink import SetAside
from kafka_replication.ledger.entries import FailedRecord, Place
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.targets.port import ToCreate
from tests.conformance.deciding import FAILURE, HELD
from tests.conformance.sink_case import SinkCase

PlaceOf = Callable[[str, PartitionKey, int, int], Place]


def colliding(topic: str, place_of: PlaceOf) -> tuple[PartitionKey, PartitionKey]:
    """Two partitions of a topic with the same number."""
    known = dict[int, PartitionKey]()
    for partition in range(1_000_000):
        key = PartitionKey(topic, TopicPartition(topic, partition), topic)
        before = known.setdefault(place_of("quarantine", key, 1, 0).partition, key)
        if before != key:
            return before, key
    raise AssertionError("no two of these keys collide")


def assert_both_records_stay(case: SinkCase, place_of: PlaceOf) -> None:
    """Of two such keys, records of the same offset."""
    topic, kept = case.file.quarantine_topic, dict[PartitionKey, FailedRecord]()
    case.target.catalogue.create(ToCreate(name=topic, partitions=1))
    aside = SetAside(policy=Failures(policy="quarantine"), topic=topic, most=10)
    for key in colliding(case.topic, place_of):
        with case.sink.session(key, case.ids, aside) as session:
            session.fence()
            writer = session.begin()
            writer.set_aside((*HELD[:2], str(key.source).encode(), *HELD[3:]), FAILURE)
            [kept[key]] = writer.failures
    assert len({failed.place for failed in kept.values()}) == 1
    with case.opened().quarantine() as quarantine:
        for key, failed in kept.items():
            original = quarantine.original(key, failed)
            assert original is not None and original[2] == str(key.source).encode()
            assert [record for record, _ in quarantine.records(topic, key, 1)] == [failed]
