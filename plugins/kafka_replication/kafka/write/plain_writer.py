"""Writes one chunk's records without a transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import KafkaError, Message

from kafka_replication.kafka.write.chunk_writer import ChunkWriter
from kafka_replication.kafka.write.plain_producer import AcknowledgedProducer
from kafka_replication.ledger.placement import KafkaSegments, Placement, Segment
from kafka_replication.sinks.port import Record


class Area(NamedTuple):
    """Target offsets ``first <= offset < end``."""

    first: int
    end: int


@dataclass(slots=True, kw_only=True)
class AcknowledgedWriter(ChunkWriter):
    """A `RecordWriter` that does not learn a record's offset: its chunk lies between two ends of the log.

    Where records can be lost, and where another copier may be at work, this is where they are expected. The segment
    says what was sent: who reads it back finds out what is there.
    """

    area: Callable[[int], Area]  # for a number of sent records
    sender: AcknowledgedProducer

    def write(self, records: Sequence[Record]) -> None:
        self.sender.sent = self._sent + len(records)
        super(AcknowledgedWriter, self).write(records)

    def finish(self, digest: str) -> Placement:
        """Wait until every record is acknowledged, as far as the profile waits for that."""
        self.sender.sent = self._sent + len(self._kept_back)
        return super(AcknowledgedWriter, self).finish(digest)

    def _placement(self, digest: str) -> KafkaSegments:
        if not self._sent:
            return KafkaSegments()
        area = self.area(self._sent)
        partition = self.key.target.partition
        segment = Segment(partition=partition, first=area.first, last=area.end - 1, count=self._sent, digest=digest)
        return KafkaSegments((segment,))

    def _delivered(self, record: Record | None, error: KafkaError | None, message: Message) -> None:
        self.sender.not_delivered(error, message)
        super(AcknowledgedWriter, self)._delivered(record, error, message)

    def _raise_failure(self) -> None:
        reason = self.sender.failure()
        if reason is not None:
            raise self._error(reason)
