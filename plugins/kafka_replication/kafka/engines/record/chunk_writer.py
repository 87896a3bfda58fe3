"""One chunk on its way from the consumer into the producer's open transaction: the record engine's hot loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message

from kafka_replication.copying.protocol import Chunk, RefusedAt
from kafka_replication.kafka import clients
from kafka_replication.kafka.scan import consume, headers_of, offset_of, raise_read_error
from kafka_replication.ledger.entries import Segment
from kafka_replication.model.errors import Refused, ReplicationError, Stalled
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.verification.digest import DIGEST_KIND, Fingerprint

if TYPE_CHECKING:
    from kafka_replication.kafka.engines.record.engine import RecordSession

REFUSALS = {
    KafkaError.MSG_SIZE_TOO_LARGE: "it is larger than the target topic's max.message.bytes",
    KafkaError.INVALID_TIMESTAMP: "its timestamp lies outside what the target topic allows",
    KafkaError.INVALID_RECORD: "the target's broker calls it invalid (a compacted topic takes no record without a key)",
    KafkaError._INVALID_ARG: "the client calls it invalid",
}
UNKNOWN = -1  # no target offset acknowledged yet
Held = tuple[Message, bytes | None, bytes | None, int, Any]  # a record, with its value, key, timestamp and headers


@dataclass(slots=True)
class Filling:
    """Reads ``left`` from its start until the chunk is full, counts and sends each record.

    A record is held until the next one is known, so that only a chunk's first and last carry a delivery callback (while
    probing all do): a callback for every record costs 0.25-0.35 s per million.
    """

    session: RecordSession
    left: OffsetRange
    position: int = 0
    seen: Fingerprint = field(default_factory=Fingerprint)
    held: Held | None = None
    first_sent: bool = False
    first_offset: int = UNKNOWN
    last_offset: int = UNKNOWN
    failed: tuple[Message, KafkaError] | None = None

    def fill(self) -> None:
        """Raises RefusedAt for a record that cannot be copied unchanged, GapFound, Stalled."""
        session, settings = self.session, self.session.settings
        self.position = self.left.from_
        pending = session.pending
        started = heard = time.monotonic()
        while self.position < self.left.until and not self.failed:
            if not pending:
                # A chunk that moved nothing is no chunk: committing it would start the stall clock anew, for ever.
                if time.monotonic() - started > settings.chunk_seconds and self.position > self.left.from_:
                    break
                pending.extend(reversed(consume(session.consumer, session.key.source, self.position)))
                session.transaction.producer.poll(0)
                if pending:
                    heard = time.monotonic()
                else:
                    self._check_stall(heard)
            if not self._take(pending):
                break
        if self.held is not None:
            self._send(self.held, hear=True)

    def _check_stall(self, heard: float) -> None:
        stall = self.session.settings.stall_timeout
        if time.monotonic() - heard > stall:
            raise Stalled(
                f"{self.session.key.source}: the source sent nothing for {stall} s at offset {self.position} of"
                f" {self.left}",
                "check the source's brokers; running again goes on from the last commit. Where gigabytes were aborted,"
                " which are read over in silence, raise copy.stall_timeout",
            )

    def _take(self, pending: list[Message]) -> bool:
        """Move records from ``pending`` to the producer; False when the chunk is full or the range ends.

        Where most of a copy's processor time goes, hence local names, and no call of ours for an ordinary record but
        the digest's.
        """
        session, until, seen, at = self.session, self.left.until, self.seen, self.session.key.source
        most_records, most_bytes = session.settings.chunk_records, session.settings.chunk_bytes
        add, produce, topic, partition = (
            seen.add,
            session.transaction.producer.produce,
            session.key.target_topic,
            at.partition,
        )
        held, position, unheard = self.held, self.position, self.first_sent and not session.probing
        try:
            while pending and not self.failed:
                if seen.count >= most_records or seen.bytes >= most_bytes:
                    return False
                message = pending.pop()
                error = message.error()
                offset: int = message.offset()  # type: ignore[assignment]  # see offset_of, which would cost a call
                if error is not None:
                    position = max(position, min(self._end_of_partition(error, offset, position), until))
                    continue
                if not position <= offset < until:
                    pending.append(message)
                    position = self._beyond(offset, position)
                    return False
                if held is not None:
                    if unheard:
                        _, value, key, timestamp, headers = held
                        try:
                            # By position: with keywords the call takes half as long again.
                            produce(topic, value, key, partition, None, None, timestamp, headers)
                        except BufferError:
                            self._send(held)
                    else:
                        self._send(held, hear=True)
                        unheard = not session.probing
                kind, timestamp = message.timestamp()
                if timestamp <= 0 or kind == TIMESTAMP_NOT_AVAILABLE:
                    raise self._unfaithful(
                        message, f"its timestamp is {timestamp}, which this client replaces by the present"
                    )
                try:
                    headers = headers_of(message)
                except SystemError as e:
                    raise self._unfaithful(message, "it has a header whose name is not UTF-8") from e
                key, value = message.key(), message.value()
                add(timestamp, key, value, headers)
                held, position = (message, value, key, timestamp, headers), offset + 1
        finally:
            self.held, self.position = held, position
        return True

    def _end_of_partition(self, error: KafkaError, offset: int, position: int) -> int:
        """Where the partition ends for now, as an error event says. Raises what any other event means."""
        if error.code() != KafkaError._PARTITION_EOF:
            raise_read_error(error, self.session.key.source, position)
        return offset

    def _beyond(self, offset: int, position: int) -> int:
        """The range's end, as a record behind it has arrived. Raises Refused for one before ``position``."""
        if offset < position:
            raise Refused(
                f"{self.session.key.source}: the source went back from {position} to {offset}", "check the source's log"
            )
        return self.left.until

    def _unfaithful(
        self,
        message: Message,
        why: str,
        remedy: str = "remove the record at the source, or exclude the topic: nothing after it is passed over",
    ) -> RefusedAt:
        at = self.session.key.source
        what = (
            f"{at}: the record at offset {message.offset()} (partition {at.partition}) cannot be copied unchanged:"
            f" {why}"
        )
        return RefusedAt(what, remedy, message.offset())

    def _send(self, held: Held, *, hear: bool = False) -> None:
        """Hand over one record, when there is room for it.

        Returns without having done so where an earlier one has failed.
        """
        session, at, (message, value, key, timestamp, headers) = self.session, self.session.key, held
        heard: Callable[..., None] | None = partial(self._delivered, message) if hear else None
        self.first_sent = True
        alone = False
        while True:
            try:
                session.transaction.producer.produce(
                    at.target_topic, value, key, at.source.partition, heard, None, timestamp, headers
                )
                return
            except BufferError:
                if alone:
                    raise self._unfaithful(
                        message,
                        "it is larger than the producer's whole queue",
                        "raise queue.buffering.max.kbytes in the extra of the target's connection, then run again",
                    ) from None
                alone = not len(session.transaction.producer)
                if not alone:
                    session.deadline.check(f"{at.source}: sending")
                    session.transaction.producer.poll(0.05)
                if self.failed:
                    return

    def _delivered(self, source: Message, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            if self.failed is None or (error.code() in REFUSALS and self.failed[1].code() not in REFUSALS):
                self.failed = (source, error)
            return
        offset = offset_of(message)
        self.first_offset = offset if self.first_offset == UNKNOWN else min(self.first_offset, offset)
        self.last_offset = max(self.last_offset, offset)

    def settle(self) -> Chunk:
        """Wait until the target has all of it, and say what that is. Raises RefusedAt, Unreachable."""
        try:
            self.session.transaction.flush()
        except ReplicationError:
            self.raise_failed()
            raise
        if self.failed:
            self.raise_failed()
        seen, range_ = self.seen, OffsetRange(self.left.from_, self.position)
        # A record's epoch says nothing about offsets behind it: a marker there may be of a later leader's.
        last = self.held[0] if self.held is not None else None
        epoch = (
            last.leader_epoch()
            if last is not None and last.offset() == range_.until - 1
            else self.session.steady_epoch()
        )
        segments = (self._segment(),) if seen.count else ()
        return Chunk(range_, seen.count, seen.bytes, seen.hexdigest(), DIGEST_KIND, segments, epoch)

    def raise_failed(self) -> None:
        """Raise what went wrong first: a refused record, or being fenced, is why the records sent after it were
        purged.
        """
        session, (record, error) = self.session, self.failed or (None, None)
        if error is not None and error.code() in REFUSALS:
            raise session.refusal(record if session.probing else None, error.code())
        reason = clients.failure(session.transaction.producer) or error
        if reason is not None and reason.code() in REFUSALS:
            raise session.refusal(None, reason.code())
        if reason is not None:
            raise clients.translate(reason, f"{session.key.source}: sending")

    def _segment(self) -> Segment:
        count, first, last = self.seen.count, self.first_offset, self.last_offset
        if UNKNOWN in (first, last):
            raise clients.translate(
                KafkaError(KafkaError._TIMED_OUT, "a chunk's ends were not acknowledged"),
                f"{self.session.key.source}: sending",
            )
        if last - first + 1 != count:
            # A record in the middle was refused, or somebody else writes there: a probing session says which.
            raise RefusedAt(
                f"{self.session.key.target}: {count} records of ours, but they lie at offsets {first} to {last}",
                "stop any other writer: a target belongs to one replication alone",
                None,
            )
        return Segment(
            partition=self.session.key.source.partition,
            first=first,
            last=last,
            count=count,
            digest=self.seen.hexdigest(),
        )
