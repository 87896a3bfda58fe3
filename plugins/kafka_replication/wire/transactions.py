"""What a transaction's coordinator is told: which partitions belong to it, and that it is over."""

from __future__ import annotations

from kio.schema.add_partitions_to_txn.v1.request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kio.schema.add_partitions_to_txn.v1.response import AddPartitionsToTxnResponse
from kio.schema.end_txn.v1.request import EndTxnRequest
from kio.schema.end_txn.v1.response import EndTxnResponse
from kio.schema.find_coordinator.v2.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v2.response import FindCoordinatorResponse
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i8, i16, i32

from kafka_replication.wire.connection import Connection

_OF_TRANSACTIONS = i8(1)


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
        told = response.results_by_topic_v3_and_below[0].results_by_partition[0]
    return int(told.partition_error_code)


def abort(connection: Connection, transactional_id: str, producer_id: int, epoch: int) -> int:
    """Returns the error code, 0 for none."""
    request = EndTxnRequest(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
        committed=False,
    )
    return int(connection.ask(request, EndTxnResponse).error_code)
