"""Sets the records of one chunk aside: into the quarantine topic, in the chunk's own transaction, or nowhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from kafka_replication.copying.sink import MOST_IN_CHUNK, Record, RefusedAt, SetAside, failed_record, size_of
from kafka_replication.kafka import quarantine
from kafka_replication.kafka.error_table import words
from kafka_replication.kafka.producers import Sender
from kafka_replication.kafka.quarantine import Origin, TargetLimits
from kafka_replication.kafka.reading import offset_of
from kafka_replication.ledger.entries import FailedRecord, Place
from kafka_replication.model.choices import Failure, FailureKind
from kafka_replication.model.errors import SessionEnded
from kafka_replication.model.offsets import TopicPartition

MOST_BYTES = 32 << 20  # of quarantined records in one chunk, beside those that are copied


@dataclass(slots=True, kw_only=True)
class AsideWriter:
    """The records that one chunk sets aside. ``refused`` says why the quarantine topic does not take a record."""

    rules: SetAside
    before: int  # records of this generation that earlier chunks set aside
    limits: TargetLimits
    origin: Origin
    sender: Sender  # that of the chunk
    partitions: Callable[[], int]  # of the quarantine topic; asked when a record goes there
    refused: RefusedAt | None = None
    full: bool = False
    _taken: list[FailedRecord] = field(default_factory=list)  # without the places
    _sent: set[int] = field(default_factory=set)  # source offsets of what goes to the quarantine topic
    _bytes: int = 0
    _places: dict[int, Place] = field(default_factory=dict)  # by source offset

    @property
    def records(self) -> tuple[FailedRecord, ...]:
        """The records that were set aside, in source order, with the places that are acknowledged."""
        return tuple(replace(failed, place=self._places.get(failed.offset)) for failed in self._taken)

    def add(self, record: Record, failure: Failure) -> None:
        """Set one record aside. The chunk ends behind a record that a refusal named, so that what lies before the next
        refusal is not sent again and again.
        """
        action, source = self.rules.action(failure), self.origin.key.source
        what = (
            f"{source}: the record at offset {failure.offset} (partition {source.partition}) cannot be copied:"
            f" {failure.reason}"
        )
        if action == "fail":
            raise RefusedAt(what, _REMEDY, failure.offset, kind=failure.kind, error=failure.error, key=record[2])
        self.rules.check(self.before + len(self._taken), failure.offset, what)
        if action == "quarantine":
            self._write(record, failure)
            self._bytes += size_of(record)
        self._taken.append(failed_record(record, failure))
        there_is_more = len(self._taken) < MOST_IN_CHUNK and self._bytes < MOST_BYTES
        self.full = self.full or not there_is_more or failure.offset in self.rules.known

    def check_acknowledged(self) -> None:
        """Wait for what was sent to the quarantine topic. Raise SessionEnded unless every record is acknowledged."""
        if self._sent:
            self.sender.flush()
        if self.refused:
            raise self.refused
        if missing := self._sent - self._places.keys():
            topic, at = self.rules.topic, self.origin.key.source
            raise SessionEnded(
                f"{at}: the quarantine topic {topic} did not acknowledge the record of source offset {min(missing)}",
                "a new session sends it again",
            )

    def _write(self, record: Record, failure: Failure) -> None:
        """Produce the record to the quarantine topic. Raises RefusedAt if the producer's whole queue is too small."""
        topic = self.rules.topic
        partition = self.origin.key.ledger_partition % self.partitions()  # all of a key in one, in their order
        whole = failure.kind is not FailureKind.UNFAITHFUL
        self.sender.topics.add(topic)
        self._sent.add(failure.offset)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._places[failure.offset] = Place(topic, partition, offset_of(message))
            elif error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD):
                self.refused = _refused(topic, record, failure, error)

        headers: list[Any] = quarantine.headers_for(record, failure, self.origin, whole=whole)
        produce, (_, _, key, value, _) = self.sender.producer.produce, record
        try:
            if not self.sender.takes(lambda: produce(topic, value, key, partition, delivered, None, 0, headers)):
                raise larger_than_queue(self.origin.key.source, record)
        except KafkaException as e:
            raise self.sender.error(e.args[0], f"writing to the quarantine topic {topic}") from e


_REMEDY = (
    "remove the cause and run again, or choose what happens to such records: failures.policy (quarantine, skip)."
    " Nothing after it is copied"
)


def larger_than_queue(source: TopicPartition, record: Record) -> RefusedAt:
    return RefusedAt(
        f"{source}: the record at offset {record[0]} (partition {source.partition}) cannot be copied: it is larger than"
        " the producer's whole queue, and than any that the client can have",
        "leave the record out (filter), then run again",
        record[0],
        kind=FailureKind.TOO_LARGE,
        error="BufferError",
        key=record[2],
        queue=size_of(record),
    )


def _refused(topic: str, record: Record, failure: Failure, error: KafkaError) -> RefusedAt:
    return RefusedAt(
        f"the quarantine topic {topic} refuses the record at source offset {failure.offset}: {words(error.code())}",
        f"raise max.message.bytes of {topic}, and take compact out of its cleanup.policy; then run again",
        failure.offset,
        kind=failure.kind,
        error=failure.error,
        key=record[2],
    )
