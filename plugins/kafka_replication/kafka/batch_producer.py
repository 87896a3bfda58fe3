"""Sends whole batches to one target partition, within the transactions of a session's producer.

confluent-kafka's producer fences, writes the ledger's entries and commits; it cannot send batches that exist already.
These go over connections of their own, under the same transactional id, producer id and epoch. So brokers refuse them
once a newer session has fenced this one, and they are committed or aborted with the entries.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

from confluent_kafka import KafkaError

from kafka_replication.kafka import clients
from kafka_replication.kafka.batch_scan import connect
from kafka_replication.kafka.brokers import security_of
from kafka_replication.kafka.producers import SendWindow
from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.ledger.entries import ONE_WRITER
from kafka_replication.ledger.placement import KafkaSegments, Segment
from kafka_replication.model.errors import ForeignWriter, ReplicationError, Unreachable
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.wire import fetching, transactions
from kafka_replication.wire.batch import Batch, batches
from kafka_replication.wire.connection import Connection

UNDER_WAY = 5  # requests; brokers remember so many batches of a producer, to know them again
WAIT = 30.0  # seconds for which the leader waits for its replicas
BEGIN = 10.0  # seconds for which the end of the transaction before is waited for
_AGAIN = 0.005  # seconds
# The coordinator still ends the transaction before, or the partition's leader has not heard of this one.
_NOT_YET = (KafkaError.CONCURRENT_TRANSACTIONS, KafkaError.NOT_ENOUGH_REPLICAS)
# The broker takes no batch like this. Its records one by one may be taken, or the one that is refused is named then.
REFUSALS = frozenset(
    {
        KafkaError.INVALID_MSG,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,  # than a segment
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.INVALID_RECORD,
    }
)
_SEQUENCES = 1 << 31


class BatchRefused(Exception):
    """The target does not take a batch as it is."""


class Identity(NamedTuple):
    """The identity by which brokers know a session's producer. A later session has another epoch."""

    producer_id: int
    epoch: int


class BatchProducer:
    """Writes the batches of one chunk after the other, over connections of one session. After an error it is of no use;
    no record that it sent is committed then.

    Raises Unreachable, Stalled, Fenced, BatchRefused, ForeignWriter, and what other errors of the broker mean.
    """

    first = None  # no record is known by itself

    def __init__(
        self,
        key: PartitionKey,
        target: clients.ClientConfig,
        transaction: TransactionalProducer,
        stored: tuple[TopicPartition, int],
        *,
        window: SendWindow,
        at: TopicPartition | None = None,
        check_between: Callable[[int], None] = lambda _: None,
    ) -> None:
        """``stored``: where a ledger entry lies that this session's producer wrote. ``window`` bounds what is under
        way. ``at``: the partition to write to; None: the key's own. ``check_between`` raises ForeignWriter if a foreign
        record lies below a target offset.
        """
        self._key, self._target, self._transaction, self._stored = key, target, transaction, stored
        self._at, self._window = at or key.target, window
        self._check_between = check_between
        self._requests = transactions.ProduceRequests(key.transactional_id, self._at.topic, self._at.partition, WAIT)
        self.sent = 0  # records of the chunk at work
        self._sequence = 0  # of the next record
        self._open = False  # whether the coordinator knows a transaction with our partition
        self._under_way = deque[tuple[Batch, float]]()  # with the time at which each was sent
        self._shortest = math.inf  # seconds from sending a batch to its answer
        self._first: int | None = None  # target offset of the transaction's first batch
        self._end = 0  # target offset behind its last one

    @cached_property
    def _identity(self) -> Identity:
        """As the header of the batch says that has our entry: so it can never be that of a session that came later."""
        at, offset = self._stored
        with connect(self._target, at, self._transaction.seconds_left) as leader:
            fetching.ask(leader, at.topic, at.partition, offset, 1, BEGIN, fetching.READ_UNCOMMITTED)
            data, _ = fetching.answer(leader)
        if data is not None:
            self._check(int(data.error_code), f"reading {at}")
            for batch in batches(memoryview(data.records or b"")):
                if batch.base_offset <= offset < batch.until:
                    return Identity(batch.producer_id, batch.producer_epoch)
        raise Unreachable(f"{at} on the target does not show our entry at offset {offset}", "run again")

    @cached_property
    def _leader(self) -> Connection:
        return connect(self._target, self._at, self._transaction.seconds_left)

    @cached_property
    def _coordinator(self) -> Connection:
        coordinator = transactions.find_coordinator(self._leader, self._key.transactional_id)
        self._check(int(coordinator.error_code), "finding the coordinator of the transaction")
        return Connection(coordinator.host, coordinator.port, security_of(self._target), self._transaction.seconds_left)

    def write(self, batch: Batch) -> None:
        """Send a batch. The transaction's first one is acknowledged when this returns; later ones may not be."""
        if self._open:
            while len(self._under_way) >= UNDER_WAY:
                self._hear()
            self._send(batch)
            self._window.drain(1, lambda: sum(one.size for one, _ in self._under_way), self._hear)
        else:
            self.join()
            sequence = self._sequence

            def attempt() -> int:
                self._sequence = sequence
                self._send(batch)
                return self._acknowledged()

            self._check(_when_ready(attempt), "sending")
        self.sent += batch.count

    def _hear(self, _: int = 0) -> None:
        self._check(self._acknowledged(), "sending")

    @property
    def most(self) -> int:
        """The bytes that a request should have at most, so that a slow target can answer in time."""
        return self._window.most

    @property
    def seconds_each(self) -> float:
        """Seconds that one more batch takes, if `UNDER_WAY` of them share the way; 0 before the first answer."""
        return 0.0 if math.isinf(self._shortest) else self._shortest / UNDER_WAY

    def join(self) -> None:
        """Make the partition a part of the open transaction. What an earlier transaction of this producer left open
        there ends with this one, too.
        """
        self._open = True  # also if the answer is lost
        error = _when_ready(
            lambda: transactions.add_partition(
                self._coordinator, self._key.transactional_id, *self._identity, self._at.topic, self._at.partition
            )
        )
        self._check(error, "beginning a transaction")

    def finish(self, digest: str) -> KafkaSegments:
        """Wait until every batch is acknowledged. Return where those are that were sent since the last commit.
        ``digest`` covers all of them.
        """
        if not self.sent:
            return KafkaSegments()
        while self._under_way:
            self._hear()
        first, until = self._first or 0, self._end
        self._check_between(first)
        segment = Segment(
            partition=self._key.target.partition, first=first, last=until - 1, count=self.sent, digest=digest
        )
        return KafkaSegments((segment,))

    def committed(self) -> None:
        """The transaction is over."""
        self._open, self._first, self._end = False, None, 0

    def close(self) -> None:
        """Abort what is open: the producer may not know that it has something to abort."""
        try:
            with suppress(ReplicationError):
                if self._open and clients.made(self, "_coordinator") is not None:
                    # Wait until nothing is under way: what a broker appends behind the marker of the abort belongs to
                    # no transaction, never ends, and hides all that follows. Where the leader is lost, only the next
                    # session may end the transaction: brokers refuse this one's batches then. The connection counts the
                    # requests: a signal may have ended us before we noted what was sent or answered.
                    until = time.monotonic() + BEGIN
                    while self._leader.open_requests:
                        self._leader.wait_at_most(max(0.1, until - time.monotonic()))
                        transactions.produced(self._leader)
                    self._coordinator.wait_at_most(BEGIN)
                    transactions.abort(self._coordinator, self._key.transactional_id, *self._identity)
        finally:
            for name in ("_leader", "_coordinator"):
                if (connection := clients.made(self, name)) is not None:
                    delattr(self, name)
                    connection.close()

    def _send(self, batch: Batch) -> None:
        self._transaction.check_progress(self._transaction.stall_clock(), len(self._under_way))
        self._requests.send(self._leader, batch, *self._identity, self._sequence % _SEQUENCES)
        self._sequence += batch.count
        self._under_way.append((batch, time.monotonic()))

    def _acknowledged(self) -> int:
        """Wait for one acknowledgement. Returns its error code."""
        self._leader.wait_at_most(self._transaction.seconds_left)
        answer, throttled = transactions.produced(self._leader)
        self._transaction.throttling.add(throttled, self._leader.address)
        batch, sent = self._under_way.popleft()
        took = time.monotonic() - sent
        self._shortest = min(self._shortest, took)
        self._window.seen(batch.size, took)
        if answer.error_code:
            return int(answer.error_code)
        if self._first is None:
            self._first = self._end = int(answer.base_offset)
        if answer.base_offset != self._end:
            raise ForeignWriter(
                f"{self._at} on the target holds records of another writer between ours, before offset"
                f" {answer.base_offset}",
                ONE_WRITER,
            )
        self._end += batch.count
        return 0

    def _check(self, error: int, doing: str) -> None:
        if error in REFUSALS:
            raise BatchRefused(KafkaError(error).str())
        if error:
            raise self._transaction.error(KafkaError(error), doing)


def _when_ready(ask: Callable[[], int]) -> int:
    """The error code, 0 for none. Asks again while the transaction before has not ended everywhere."""
    until = time.monotonic() + BEGIN
    while (error := ask()) in _NOT_YET and time.monotonic() < until:
        time.sleep(_AGAIN)
    return error
