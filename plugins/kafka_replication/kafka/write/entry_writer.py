"""The producer that writes ledger entries in a profile."""

from __future__ import annotations

from kafka_replication.config import Copy
from kafka_replication.kafka.client import clients
from kafka_replication.kafka.write.plain_producer import AcknowledgedProducer
from kafka_replication.kafka.write.transactions import TransactionalProducer
from kafka_replication.ledger.transaction import TransactionPort
from kafka_replication.model.delivery import EXACTLY_ONCE, Delivery
from kafka_replication.runtime.deadline import Deadline


def writer_of(
    delivery: Delivery,
    transactional_id: str,
    what: str,
    target: clients.ClientConfig,
    settings: Copy,
    deadline: Deadline,
) -> TransactionPort:
    """A producer of ledger entries, whose errors name ``what``. No profile loses an entry. The caller closes it."""
    if delivery == EXACTLY_ONCE:
        return TransactionalProducer(transactional_id, what, target, settings, deadline)
    return AcknowledgedProducer("at_least_once", what, target, settings, deadline)
