"""Requests of a transactional producer: Produce, version 7, with one batch for one partition in each request; to its
coordinator: add a partition, abort. Requests about transactions of other producers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import datetime, timedelta

from kio.schema.add_partitions_to_txn.v1.request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kio.schema.add_partitions_to_txn.v1.response import AddPartitionsToTxnResponse
from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.describe_producers.v0.response import DescribeProducersResponse
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse
from kio.schema.end_txn.v1.request import EndTxnRequest
from kio.schema.end_txn.v1.response import EndTxnResponse
from kio.schema.find_coordinator.v2.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v2.response import FindCoordinatorResponse
from kio.schema.list_transactions.v0.request import ListTransactionsRequest
from kio.schema.list_transactions.v0.response import ListTransactionsResponse
from kio.schema.produce.v7.response import PartitionProduceResponse, ProduceResponse
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i8, i16, i32

from kafka_replication.wire.batch import Batch
from kafka_replication.wire.connection import Connection

_OF_TRANSACTIONS = i8(1)
ONGOING = "Ongoing"


def find_coordinator(connection: Connection, transactional_id: str) -> FindCoordinatorResponse:
    return connection.ask(
        FindCoordinatorRequest(key=transactional_id, key_type=_OF_TRANSACTIONS), FindCoordinatorResponse
    )


def add_partition(
    connection: Connection, transactional_id: str, producer_id: int, epoch: int, topic: str, partition: int
) -> int:
    """Begin the transaction if none is open, and add the partition to it. Returns the error code, 0 for none."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TransactionalId(transactional_id),
        v3_and_below_producer_id=ProducerId(producer_id),
        v3_and_below_producer_epoch=i16(epoch),
        v3_and_below_topics=(AddPartitionsToTxnTopic(name=TopicName(topic), partitions=(i32(partition),)),),
    )
    response = connection.ask(request, AddPartitionsToTxnResponse)
    with connection.understanding():
        result = response.results_by_topic_v3_and_below[0].results_by_partition[0]
    return int(result.partition_error_code)


def abort(connection: Connection, transactional_id: str, producer_id: int, epoch: int) -> int:
    """Returns the error code, 0 for none."""
    request = EndTxnRequest(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
        committed=False,
    )
    return int(connection.ask(request, EndTxnResponse).error_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transaction as its coordinator, a broker, describes it. The times are those of one in state `ONGOING`."""

    transactional_id: str
    state: str
    begun: datetime | None = None
    timeout: timedelta | None = None
    coordinator: int | None = None


def open_in(leader: Connection, topic: str, partition: int) -> dict[int, int]:
    """The ids of the producers with an open transaction in this partition, from the partition's leader, each with the
    offset where that begins. The first one to begin comes first. Brokers before 3.0 close the connection.
    """
    asked = TopicRequest(name=TopicName(topic), partition_indexes=(i32(partition),))
    response = leader.ask(DescribeProducersRequest(topics=(asked,)), DescribeProducersResponse)
    with leader.understanding():
        producers = response.topics[0].partitions[0].active_producers
    inside = [producer for producer in producers if producer.current_txn_start_offset >= 0]
    inside.sort(key=lambda producer: producer.current_txn_start_offset)
    return {int(producer.producer_id): int(producer.current_txn_start_offset) for producer in inside}


def transaction_of(broker: Connection, producer_id: int) -> TransactionDescription | None:
    """The producer's transaction as this broker describes it; None if it is not the coordinator."""
    listed = broker.ask(
        ListTransactionsRequest(producer_id_filters=(ProducerId(producer_id),)), ListTransactionsResponse
    )
    transaction = next(iter(listed.transaction_states), None)
    if transaction is None:
        return None
    if transaction.transaction_state != ONGOING:  # kio cannot read the start time of one that has ended
        return TransactionDescription(
            transactional_id=str(transaction.transactional_id), state=transaction.transaction_state
        )
    ids = (transaction.transactional_id,)
    response = broker.ask(DescribeTransactionsRequest(transactional_ids=ids), DescribeTransactionsResponse)
    for described in response.transaction_states:
        if not described.error_code:
            return TransactionDescription(
                transactional_id=str(described.transactional_id),
                state=described.transaction_state,
                begun=described.transaction_start_time,
                timeout=described.transaction_timeout,
            )
    return None


_PRODUCE, _VERSION, _ALL = 0, 7, -1
_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")


class ProduceRequests:
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


def produced(connection: Connection) -> tuple[PartitionProduceResponse, float]:
    """The answer to the oldest request, and the seconds for which a quota makes this client wait."""
    response = connection.answer(ProduceResponse)
    with connection.understanding():
        partition = response.responses[0].partition_responses[0]
    return partition, response.throttle_time.total_seconds()


def _string(text: str) -> bytes:
    data = text.encode()
    return _I16.pack(len(data)) + data
