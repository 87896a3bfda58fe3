"""The record engine: decodes every record from the source and sends it to the target, inside one transaction a chunk."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message

from kafka_replication.config import Copy
from kafka_replication.copy import Chunk, CopyTask, RefusedAt
from kafka_replication.errors import ForeignWriter, RecordRefused, Refused, Stalled
from kafka_replication.fingerprint import DIGEST_KIND, Fingerprint
from kafka_replication.kafka import clients, topics
from kafka_replication.kafka.scan import assign, consume, raise_read_error
from kafka_replication.kafka.session import LedgerSession
from kafka_replication.ledger import Position, Segment
from kafka_replication.offsets import OffsetRange

_REFUSALS = {
    KafkaError.MSG_SIZE_TOO_LARGE: "it is larger than the target topic's max.message.bytes",
    KafkaError.INVALID_TIMESTAMP: "its timestamp lies outside what the target topic allows",
    KafkaError.INVALID_RECORD: "the target's broker calls it invalid (a compacted topic takes no record without a key)",
    KafkaError._INVALID_ARG: "the client calls it invalid",
}
_PROBE = {"batch.num.messages": 1, "linger.ms": 0}
MAX_BATCH = 1 << 20


class RecordEngine:
    """Copies with confluent-kafka; handles every record that this client can read faithfully, refuses others by name."""

    name = "record/1"

    def __init__(self, source: clients.ClientConfig, target: clients.ClientConfig, settings: Copy) -> None:
        self._source, self._target, self._settings = source, target, settings

    @contextmanager
    def session(self, task: CopyTask, *, probing: bool = False) -> Iterator[RecordSession]:
        session = RecordSession(task, self._source, self._target, self._settings, probing=probing)
        try:
            yield session
        finally:
            session.close()


class RecordSession(LedgerSession):
    """A producer life that also reads the source."""

    def __init__(
        self, task: CopyTask, source: clients.ClientConfig, target: clients.ClientConfig, settings: Copy, *, probing: bool
    ) -> None:
        super().__init__(task.key, source, target, settings)
        self._probing = probing
        self._more = _PROBE if probing else {}
        self._pending: list[Message] = []
        self._at: int | None = None

    @cached_property
    def _limits(self) -> Mapping[str, str]:
        return topics.configs(self.target_admin, [self.key.target_topic])[self.key.target_topic]

    @cached_property
    def _consumer(self) -> Consumer:
        return clients.consumer(self.source, self.group)

    def fence(self) -> None:
        # A batch above the topic's limit is refused whole, with records that fit; 1 KiB is left for its framing.
        limit = int(self._limits["max.message.bytes"])
        self._more = {"batch.size": max(1024, min(MAX_BATCH, limit - 1024)), **self._more}
        super().fence()

    def close(self) -> None:
        super().close()
        if "_consumer" in self.__dict__:
            self._consumer.close()

    def copy_chunk(self, left: OffsetRange, position: Position) -> Chunk:
        if self._at != left.from_:
            epoch = position.leader_epoch if left.from_ == position.next_offset else None
            assign(self._consumer, self.key.source, left.from_, epoch)
            self._pending = []
        self.begin()
        filling = _Filling(self, left)
        try:
            filling.fill()
        except (KafkaException, SystemError) as e:
            error = clients.true_error(e, self.producer)
            if error.code() in _REFUSALS:
                raise self.refusal(filling.last, error.code()) from e
            raise clients.translate(error, f"{self.key.source}: sending") from e
        chunk = filling.settle()
        self._at = chunk.range.until
        return chunk

    def refusal(self, record: Message | None, code: int) -> RefusedAt:
        at, why = self.key.source, _REFUSALS[code]
        if record is None:
            return RefusedAt(f"{at}: {self.key.target_topic} refuses a record: {why}", "", None)
        size = len(record.key() or b"") + len(record.value() or b"")
        limits = ", ".join(
            f"{name}={value}" for name, value in self._limits.items() if name in ("max.message.bytes", *_TIMESTAMP_LIMITS) and _speaks_of(code, name)
        )
        return RefusedAt(
            f"{at}: the target topic {self.key.target_topic} refuses the record at offset {record.offset()} "
            f"(partition {at.partition}, {size} bytes, timestamp {record.timestamp()[1]}): {why} ({limits})",
            f"raise the limit on {self.key.target_topic}, then run again: everything before offset {record.offset()} is copied, nothing after it",
            record.offset(),
        )


_TIMESTAMP_LIMITS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "message.timestamp.type")


def _speaks_of(code: int, setting: str) -> bool:
    return setting.startswith("message.timestamp") == (code == KafkaError.INVALID_TIMESTAMP)


@dataclass(slots=True)
class _Filling:
    """One chunk on its way from the consumer into the producer's open transaction."""

    session: RecordSession
    left: OffsetRange
    position: int = 0
    print: Fingerprint | None = None
    last: Message | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    epoch: int | None = None
    failed: tuple[Message | None, KafkaError] | None = None

    def fill(self) -> None:
        session, settings = self.session, self.session.settings
        self.position, self.print = self.left.from_, Fingerprint()
        until, pending = self.left.until, session._pending
        started = heard = time.monotonic()
        while self.position < until:
            if not pending:
                if time.monotonic() - started > settings.chunk_seconds:
                    break
                pending.extend(reversed(consume(session._consumer, session.key.source, self.position)))
                session.producer.poll(0)
                if not pending:
                    self._check_stall(heard)
                    continue
                heard = time.monotonic()
            if self.failed or not self._take(pending, until):
                break
        if self.last is not None:
            self._send(self.last, last=True)

    def _check_stall(self, heard: float) -> None:
        stall = self.session.settings.stall_timeout
        if time.monotonic() - heard > stall:
            raise Stalled(
                f"{self.session.key.source}: the source sent nothing for {stall} s at offset {self.position} of {self.left}",
                "check the source's brokers; running again goes on from the last commit",
            )

    def _take(self, pending: list[Message], until: int) -> bool:
        """Move records from ``pending`` to the producer; False when the chunk is full or the range ends. The hot loop."""
        settings, counted = self.session.settings, self.print
        assert counted is not None
        max_records, max_bytes = settings.chunk_records, settings.chunk_bytes
        while pending:
            if counted.count >= max_records or counted.bytes >= max_bytes:
                return False
            message = pending.pop()
            error = message.error()
            offset = message.offset()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise_read_error(error, self.session.key.source, self.position)
                self.position = max(self.position, min(offset, until))
                continue
            if offset >= until:
                pending.append(message)
                self.position = until
                return False
            if offset < self.position:
                raise Refused(f"{self.session.key.source}: the source went back from {self.position} to {offset}", "check the source's log")
            if self.last is not None:
                self._send(self.last, last=False)
            kind, timestamp = message.timestamp()
            if timestamp == 0 or kind == TIMESTAMP_NOT_AVAILABLE:
                raise self._unfaithful(message, f"its timestamp is {timestamp}, which this client replaces by the present")
            try:
                headers = message.headers()
            except SystemError as e:
                raise self._unfaithful(message, "it has a header whose name is not UTF-8") from e
            counted.add(timestamp, message.key(), message.value(), headers)
            self.last, self.position = message, offset + 1
        return True

    def _unfaithful(self, message: Message, why: str) -> RefusedAt:
        at = self.session.key.source
        what = f"{at}: the record at offset {message.offset()} (partition {at.partition}) cannot be copied unchanged: {why}"
        return RefusedAt(what, "this record needs the batch engine or a decision: nothing after it is passed over", message.offset())

    def _send(self, message: Message, *, last: bool) -> None:
        """Hand one record over; only a chunk's first and last carry a callback (all of them while probing)."""
        assert self.print is not None
        more: dict[str, Any] = {}
        if last or self.first_offset is None or self.session._probing:
            more["on_delivery"] = partial(self._delivered, message)
            self.first_offset = -1 if self.first_offset is None else self.first_offset
        headers = message.headers()
        if headers:
            more["headers"] = headers
        produce = self.session.producer.produce
        while True:
            try:
                produce(
                    self.session.key.target_topic, message.value(), message.key(), self.session.key.source.partition,
                    timestamp=message.timestamp()[1], **more,
                )  # fmt: skip
                return
            except BufferError:
                self.session.producer.poll(0.05)
                if self.failed:
                    return

    def _delivered(self, source: Message, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            known = error.code() in _REFUSALS
            if self.failed is None or (known and self.failed[1].code() not in _REFUSALS):
                self.failed = (source, error)
            return
        offset = message.offset()
        self.first_offset = offset if self.first_offset in (None, -1) else min(self.first_offset or 0, offset)
        self.last_offset = offset if self.last_offset is None else max(self.last_offset, offset)

    def settle(self) -> Chunk:
        """Wait until the target has all of it, and say what that is."""
        session, counted = self.session, self.print
        assert counted is not None
        try:
            session._flush()
        except RecordRefused:
            raise
        except Exception:
            if self.failed is None:
                raise
        if self.failed:
            self._raise_failed()
        segments: tuple[Segment, ...] = ()
        if counted.count:
            if self.first_offset in (None, -1) or self.last_offset is None:
                raise clients.translate(KafkaError(KafkaError._TIMED_OUT, "a chunk's ends were not acknowledged"), f"{session.key.source}: sending")
            first, last = self.first_offset or 0, self.last_offset
            if last - first + 1 != counted.count:
                raise ForeignWriter(
                    f"{session.key.target}: {counted.count} records of ours lie between offsets {first} and {last}: somebody else writes there too",
                    "stop the other writer: a target belongs to one replication alone",
                )
            segments = (Segment(session.key.source.partition, first, last, counted.count, counted.hexdigest()),)
        epoch = self.last.leader_epoch() if self.last is not None else None
        range_ = OffsetRange(self.left.from_, self.position)
        return Chunk(range_, counted.count, counted.bytes, counted.hexdigest(), DIGEST_KIND, segments, epoch)

    def _raise_failed(self) -> None:
        assert self.failed is not None
        record, error = self.failed
        if error.code() in _REFUSALS:
            raise self.session.refusal(record if self.session._probing else None, error.code())
        raise clients.translate(error, f"{self.session.key.source}: sending")
