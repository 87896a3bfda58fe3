"""A session of the batch engine that is interrupted: its transaction is not aborted before all is answered that was sent."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_replication.kafka.batch_producer import BatchProducer, Identity
from kafka_replication.kafka.producers import SendWindow
from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.model.errors import Stalled
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.wire.batch import Batch
from kafka_replication.wire.connection import Connection
from kafka_replication.wire.transactions import ProduceRequests

BATCH = cast("Batch", SimpleNamespace(count=1, size=100))


class Broker:
    """A connection on which every request is answered as soon as somebody waits for it, and nothing else ever is."""

    def __init__(self, name: str, order: list[str]) -> None:
        self.name, self.order, self.address = name, order, "127.0.0.1:9092"
        self.open_requests, self.interrupts = 0, False

    def ask(self, request: Any, kind: Any) -> Any:
        self.order.append(f"{self.name}: asked")
        return SimpleNamespace(error_code=0)

    def answer(self, kind: Any) -> Any:
        if not self.open_requests:
            raise Stalled(f"{self.address} did not answer in time", "run again")
        self.open_requests -= 1
        self.order.append(f"{self.name}: answered")
        if self.interrupts:
            self.interrupts = False
            raise SystemExit(143)
        told = SimpleNamespace(error_code=0, base_offset=0)
        responses = [SimpleNamespace(partition_responses=[told])]
        return SimpleNamespace(responses=responses, throttle_time=SimpleNamespace(total_seconds=lambda: 0.0))

    @contextmanager
    def understanding(self) -> Any:
        yield

    def wait_at_most(self, seconds: float) -> None: ...
    def close(self) -> None: ...


class Sending:
    """Requests that a signal interrupts when the ``last`` one has left."""

    def __init__(self, last: int) -> None:
        self.left = last

    def send(self, connection: Broker, *about: Any) -> None:
        connection.open_requests += 1
        connection.order.append(f"{connection.name}: sent")
        self.left -= 1
        if not self.left:
            raise SystemExit(143)


class Lane(BatchProducer):
    """Its transaction is open, and it is connected to these brokers."""

    def __init__(self, requests: Sending, leader: Broker, coordinator: Broker) -> None:
        transaction = SimpleNamespace(
            check_progress=lambda *_: None,
            stall_clock=lambda: None,
            seconds_left=1.0,
            throttling=SimpleNamespace(add=lambda *_: None),
        )
        key = PartitionKey("orders", TopicPartition("events", 0), "events")
        stored = TopicPartition("ledger", 0), 0
        super().__init__(key, {}, cast("TransactionalProducer", transaction), stored, window=SendWindow(1.0))
        self._open = True
        self._identity = Identity(1, 0)
        self._requests = cast("ProduceRequests", requests)
        self._leader, self._coordinator = cast("Connection", leader), cast("Connection", coordinator)


@pytest.mark.parametrize("sent", [1, 2, 4])
def test_what_a_signal_interrupts_is_answered_before_the_abort(sent: int) -> None:
    order = list[str]()
    lane = Lane(Sending(sent), Broker("leader", order), Broker("coordinator", order))
    for _ in range(sent - 1):
        lane.write(BATCH)
    with pytest.raises(SystemExit):
        lane.write(BATCH)
    lane.close()
    assert order == ["leader: sent"] * sent + ["leader: answered"] * sent + ["coordinator: asked"]


def test_an_answer_that_was_read_is_not_waited_for_again() -> None:
    """The signal comes when the answer has been read and is not yet counted."""
    order = list[str]()
    leader = Broker("leader", order)
    lane = Lane(Sending(0), leader, Broker("coordinator", order))
    lane.write(BATCH)
    leader.interrupts = True
    with pytest.raises(SystemExit):
        lane.finish("")
    lane.close()
    assert order == ["leader: sent", "leader: answered", "coordinator: asked"]
