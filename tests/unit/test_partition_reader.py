"""What readers make of events that no broker sends on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, KafkaError, Message

from kafka_replication.config import Copy
from kafka_replication.copying.sink import Record
from kafka_replication.kafka.chunk_reader import ChunkReader
from kafka_replication.kafka.consumer_pool import Pace
from kafka_replication.kafka.reading import PartitionReader, raise_read_error
from kafka_replication.ledger.placement import KafkaSegments
from kafka_replication.model.choices import Failure
from kafka_replication.model.errors import GapFound, Refused, Unexpected
from kafka_replication.model.offsets import OffsetRange, TopicPartition

AT = TopicPartition("events", 0)
# As librdkafka 2.15 and 2.16 say it of an offset that retention has removed.
OUT_OF_RANGE = (
    "fetch failed due to requested offset not available on the broker: Broker: Offset out of range (broker 1)"
)


class Scripted:
    """A consumer with these events, in batches of one, whatever is assigned."""

    def __init__(self, *events: Message) -> None:
        self.events, self.assigned = list(events), list[int]()

    def assign(self, places: list[Any]) -> None:
        self.assigned += [place.offset for place in places]

    def poll(self, _: float) -> Message | None:
        return self.events.pop(0) if self.events else None

    def consume(self, *_: Any) -> list[Message]:
        return []


def event(offset: int, code: int | None = None) -> Message:
    error = None if code is None else KafkaError(code, OUT_OF_RANGE if code == KafkaError._AUTO_OFFSET_RESET else None)
    time = TIMESTAMP_CREATE_TIME, 1_700_000_000_000
    return Message(topic=AT.topic, partition=AT.partition, offset=offset, value=b"", error=error, timestamp=time)


@pytest.mark.parametrize("lost", [7, 10])
def test_behind_an_unreadable_batch_only_its_own_place_can_be_lost(lost: int) -> None:
    """librdkafka may still say that the assignment before lost its place, at an offset that it found in the batch."""
    events = event(0), event(10, KafkaError._BAD_COMPRESSION), event(lost, KafkaError._AUTO_OFFSET_RESET), event(20)
    consumer = Scripted(*events, event(21))
    reader = PartitionReader(cast(Consumer, consumer), AT, stall=0)
    assert [message.offset() for message in reader.records(OffsetRange(0, 10), trusting=True)] == [0]
    reading = reader.records(OffsetRange(20, 22))
    if lost == 10:
        with pytest.raises(GapFound):
            list(reading)
    else:
        assert [message.offset() for message in reading] == [20, 21]
    assert consumer.assigned == [0, 10]


@pytest.mark.parametrize(("until", "trusting"), [(10, False), (11, True)])
def test_a_batch_that_cannot_be_read_is_an_error(until: int, *, trusting: bool) -> None:
    consumer = Scripted(event(0), event(10, KafkaError._BAD_COMPRESSION))
    reader = PartitionReader(cast(Consumer, consumer), AT, stall=0)
    with pytest.raises(Refused, match="at or after offset 1 is corrupted"):
        list(reader.records(OffsetRange(0, until), trusting=trusting))


@pytest.mark.parametrize("lost", [7, 30_000])
def test_an_earlier_assignment_may_lose_its_place_behind_its_range(lost: int) -> None:
    """It had fetched a batch ahead that cannot be read."""
    consumer = Scripted(event(0), event(1), event(lost, KafkaError._AUTO_OFFSET_RESET), event(30_000))
    reader = PartitionReader(cast(Consumer, consumer), AT, stall=0)
    assert [message.offset() for message in reader.records(OffsetRange(0, 2))] == [0, 1]
    reading = reader.records(OffsetRange(30_000, 30_001))
    if lost == 30_000:
        with pytest.raises(GapFound):
            list(reading)
    else:
        assert [message.offset() for message in reading] == [30_000]
    assert consumer.assigned == [0, 30_000]


def test_after_an_error_reading_begins_anew() -> None:
    """The consumer gives nothing more of an assignment that lost its place."""
    consumer = Scripted(event(0), event(1, KafkaError._AUTO_OFFSET_RESET), event(3))
    reader = PartitionReader(cast(Consumer, consumer), AT, stall=0)
    with pytest.raises(GapFound, match="offset 1 can no longer be read"):
        list(reader.records(OffsetRange(0, 3)))
    assert [message.offset() for message in reader.records(OffsetRange(3, 4))] == [3]
    assert consumer.assigned == [0, 3]


class Written:
    """A writer that takes everything."""

    screen, full, failures = None, False, ()

    def __init__(self) -> None:
        self.records = list[Record]()

    def set_aside(self, record: Record, failure: Failure) -> None:
        raise AssertionError

    def write(self, records: Sequence[Record]) -> None:
        self.records += records

    def finish(self, digest: str) -> KafkaSegments:
        return KafkaSegments()


@pytest.mark.parametrize(("lost", "assigned"), [(7, True), (20, True), (7, False)])
def test_a_copy_whose_earlier_assignment_lost_its_place_goes_on(lost: int, *, assigned: bool) -> None:
    """Only just after it was assigned anew, and only at another offset."""
    consumer, writer = Scripted(event(lost, KafkaError._AUTO_OFFSET_RESET), event(20), event(21)), Written()
    source = PartitionReader(cast(Consumer, consumer), AT)
    source.assign(20 if assigned else 10)
    chunk = ChunkReader(source=source, left=OffsetRange(20, 22), most_records=10, settings=Copy(), pace=Pace(None))
    if lost == 20 or not assigned:
        with pytest.raises(GapFound):
            chunk.read(writer)
    else:
        chunk.read(writer)
        assert [record[0] for record in writer.records] == [20, 21] and chunk.position == 22


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(KafkaError._AUTO_OFFSET_RESET, "Partition log truncation detected: broker end offset is 60"),
        KafkaError(KafkaError._LOG_TRUNCATION, "Partition log truncation detected"),
    ],
)
def test_a_truncation_is_never_taken_for_a_lost_place_of_an_earlier_assignment(error: KafkaError) -> None:
    told = Message(topic=AT.topic, partition=AT.partition, offset=60, error=error)
    source = PartitionReader(cast(Consumer, Scripted(told)), AT, stall=1)
    source.assign(101)
    chunk = ChunkReader(
        source=source, left=OffsetRange(101, 182), most_records=10, settings=Copy(stall_timeout=1), pace=Pace(None)
    )
    with pytest.raises(Refused, match="truncated below offset 101"):
        chunk.read(Written())


@pytest.mark.parametrize("said", ["something new (broker 1)", "Unable to validate offset and epoch: Local: Timed out"])
def test_a_lost_place_for_a_reason_that_is_not_known_is_no_gap(said: str) -> None:
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET, said)
    with pytest.raises(Unexpected, match="_AUTO_OFFSET_RESET") as caught:
        raise_read_error(cast(Consumer, Scripted()), error, AT, 20)
    assert said in caught.value.what and "lost offsets" not in caught.value.remedy
