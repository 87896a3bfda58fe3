"""Waiting for a producer's queue: the stall clock counts from the last progress, not from the start."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_replication.config import Copy
from kafka_replication.kafka.commit import Atomic
from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.model.errors import OutOfTime, Stalled, TargetLost
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.runtime.deadline import NEVER, Deadline


class Queue:
    """A producer whose `flush` takes ``seconds`` on the fake clock and leaves what ``left`` says."""

    def __init__(self, left: list[int], seconds: float) -> None:
        self.now, self._left, self._seconds = 0.0, iter(left), seconds

    def flush(self, timeout: float) -> int:
        self.now += self._seconds
        return next(self._left)

    def begin_transaction(self) -> None:
        raise KafkaException(KafkaError(KafkaError._STATE))  # a transaction is open, and nothing speaks against it


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[Queue]:
    queues: list[Queue] = []
    monkeypatch.setattr("time.monotonic", lambda: queues[0].now if queues else 0.0)
    return queues


def flush(clock: list[Queue], left: list[int], deadline: Deadline = NEVER) -> float:
    transaction = TransactionalProducer("id", "orders-0", {}, Copy(stall_timeout=60), deadline)
    clock.append(Queue(left, 25.0))
    transaction.__dict__["producer"] = clock[0]
    transaction.flush()
    return clock[0].now


def test_a_slow_target_that_takes_records_is_waited_for(clock: list[Queue]) -> None:
    assert flush(clock, [90, 90, 80, 80, 70, 70, 60, 10, 0]) == 225.0


def test_a_target_that_takes_nothing_is_named_after_the_stall_timeout(clock: list[Queue]) -> None:
    with pytest.raises(Stalled, match="orders-0: the target acknowledged nothing for 60 s, 90 records"):
        flush(clock, [100, 90, 90, 90, 90, 90, 90])
    assert clock[0].now == 125.0  # the last progress was at 50 s


def test_the_runs_time_ends_the_wait(clock: list[Queue]) -> None:
    with pytest.raises(OutOfTime):
        flush(clock, [90] * 9, Deadline(50.0))


def test_a_chunk_below_the_one_before_it_shows_that_the_target_lost_its_end() -> None:
    key = PartitionKey("orders-dr", TopicPartition("orders", 0), "orders")
    atomic = Atomic(key, {}, Copy(), NEVER)
    atomic.follows(10, None)
    with pytest.raises(TargetLost, match="has the offset 8, but those before it reached up to 10"):
        atomic.lies(2, 8, 9)
    assert atomic.lies(2, 10, 11) == OffsetRange(10, 12)
