"""The record engine: decodes every record from the source and sends it to the target, inside one transaction a
chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from kafka_replication.config import Copy
from kafka_replication.copying.protocol import Chunk, CopyTask, RefusedAt
from kafka_replication.kafka import clients, offsets, topics
from kafka_replication.kafka.engines.record.chunk_writer import REFUSALS, Filling
from kafka_replication.kafka.scan import assign, without_gc
from kafka_replication.kafka.session import PartitionSession
from kafka_replication.ledger.entries import Position
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.runtime.deadline import NEVER, Deadline

_PROBE = {"batch.num.messages": 1, "linger.ms": 0}
MAX_BATCH = 1 << 20


class RecordEngine:
    """Copies with confluent-kafka: every record that this client can read faithfully; others are refused by name."""

    name = "record/1"

    def __init__(
        self, source: clients.ClientConfig, target: clients.ClientConfig, settings: Copy, deadline: Deadline = NEVER
    ) -> None:
        self._source, self._target, self._settings, self._deadline = source, target, settings, deadline

    @contextmanager
    def session(self, task: CopyTask, *, probing: bool = False) -> Iterator[RecordSession]:
        session = RecordSession(task, self._source, self._target, self._settings, self._deadline, probing=probing)
        try:
            yield session
        finally:
            session.close()


class RecordSession(PartitionSession):
    """A producer life that also reads the source."""

    def __init__(
        self,
        task: CopyTask,
        source: clients.ClientConfig,
        target: clients.ClientConfig,
        settings: Copy,
        deadline: Deadline,
        *,
        probing: bool,
    ) -> None:
        super().__init__(task.key, source, target, settings, deadline)
        self.probing = probing
        self.transaction.options |= _PROBE if probing else {}
        self.pending: list[Message] = []
        self._at: int | None = None
        self._began_in: int | None = None  # the source's leader epoch before the first record was read

    @cached_property
    def _limits(self) -> Mapping[str, str]:
        return topics.configs(self.target_admin, [self.key.target_topic])[self.key.target_topic]

    @cached_property
    def consumer(self) -> Consumer:
        return clients.consumer(self.source, self.group)

    def fence(self) -> None:
        # A batch above the topic's limit is refused whole, with records that fit; 1 KiB is left for its framing.
        limit = int(self._limits["max.message.bytes"])
        self.transaction.options["batch.size"] = max(1024, min(MAX_BATCH, limit - 1024))
        super().fence()

    def close(self) -> None:
        super().close()
        if "consumer" in self.__dict__:
            self.consumer.close()

    def copy_chunk(self, left: OffsetRange, position: Position) -> Chunk:
        if self._at != left.from_:
            epoch = position.leader_epoch if left.from_ == position.next_offset else None
            self._began_in = offsets.leader_epoch(self.source_admin, self.key.source)
            assign(self.consumer, self.key.source, left.from_, epoch)
            self.pending = []
        self.transaction.begin()
        filling = Filling(self, left)
        try:
            with without_gc():
                filling.fill()
        except (KafkaException, SystemError) as e:
            if (
                isinstance(e, KafkaException) and e.args[0].code() in REFUSALS
            ):  # by the client itself, as it was handed over
                raise self.refusal(filling.held[0] if filling.held else None, e.args[0].code()) from e
            error = clients.true_error(e, self.transaction.producer)
            if error.code() in REFUSALS:  # by the broker, some records ago: while probing, its callback says which
                self.transaction.producer.flush(1.0)
                filling.raise_failed()
            raise clients.translate(error, f"{self.key.source}: sending") from e
        chunk = filling.settle()
        self._at = chunk.range.until
        return chunk

    def steady_epoch(self) -> int | None:
        """The source's leader epoch, if it has been the same since reading began: then nothing that was read is of a
        later one.
        """
        return self._began_in if self._began_in == offsets.leader_epoch(self.source_admin, self.key.source) else None

    def refusal(self, record: Message | None, code: int) -> RefusedAt:
        at, why = self.key.source, REFUSALS[code]
        if record is None:
            return RefusedAt(f"{at}: {self.key.target_topic} refuses a record: {why}", "", None)
        size = len(record.key() or b"") + len(record.value() or b"")
        limits = ", ".join(
            f"{name}={value}"
            for name, value in self._limits.items()
            if name in ("max.message.bytes", *_TIMESTAMP_LIMITS) and _speaks_of(code, name)
        )
        return RefusedAt(
            f"{at}: the target topic {self.key.target_topic} refuses the record at offset {record.offset()} "
            f"(partition {at.partition}, {size} bytes, timestamp {record.timestamp()[1]}): {why} ({limits})",
            f"raise the limit on {self.key.target_topic}, then run again: all before offset {record.offset()} is"
            " copied, nothing after it",
            record.offset(),
        )


_TIMESTAMP_LIMITS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "message.timestamp.type")


def _speaks_of(code: int, setting: str) -> bool:
    return setting.startswith("message.timestamp") == (code == KafkaError.INVALID_TIMESTAMP)
