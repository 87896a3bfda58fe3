"""Produce, version 7: one batch for one partition in each request."""

from __future__ import annotations

import struct

from kio.schema.produce.v7.response import PartitionProduceResponse, ProduceResponse

from kafka_replication.wire.batch import Batch
from kafka_replication.wire.connection import Connection

_PRODUCE, _VERSION, _ALL = 0, 7, -1
_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")


class Requests:
    """The requests of one transactional producer for one partition."""

    def __init__(self, transactional_id: str, topic: str, partition: int, timeout: float) -> None:
        """``timeout`` is the number of seconds for which the broker waits for its replicas."""
        self._before = b"".join(
            (
                _string(transactional_id),
                _I16.pack(_ALL),
                _I32.pack(int(timeout * 1000)),
                _I32.pack(1),
                _string(topic),
                _I32.pack(1),
                _I32.pack(partition),
            )
        )

    def send(self, connection: Connection, batch: Batch, producer_id: int, epoch: int, sequence: int) -> None:
        header, payload = batch.framed(producer_id, epoch, sequence)
        before = self._before + _I32.pack(batch.size) + header
        connection.send(_PRODUCE, _VERSION, [before, payload])


def answer(connection: Connection) -> tuple[PartitionProduceResponse, float]:
    """The answer to the oldest request, and the seconds for which a quota makes this client wait."""
    response = connection.answer(ProduceResponse)
    with connection.understanding():
        partition = response.responses[0].partition_responses[0]
    return partition, response.throttle_time.total_seconds()


def _string(text: str) -> bytes:
    data = text.encode()
    return _I16.pack(len(data)) + data
