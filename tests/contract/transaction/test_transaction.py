"""The conformance suite of transaction ports, on both of Kafka's producers; and broken ones, which it must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_replication.kafka import offsets
from kafka_replication.kafka.producers import AcknowledgedProducer
from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.ledger.port import TransactionPort
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runtime.deadline import NEVER
from tests.conformance.ground import SETTINGS
from tests.conformance.transaction import ATOMIC, ORDERED, Check, TransactionCase
from tests.contract.kafka_ground import KafkaGround
from tests.contract.transaction.broken import ALL, UNORDERED, Broken, Unordered
from tests.support.scenario import Cluster

Make = Callable[[str, dict[str, Any]], TransactionPort]


def transactional(id_: str, config: dict[str, Any]) -> TransactionPort:
    return TransactionalProducer(id_, "contract", config, SETTINGS, NEVER)


def acknowledged(_: str, config: dict[str, Any]) -> TransactionPort:
    return AcknowledgedProducer("at_least_once", "contract", config, SETTINGS, NEVER)


PROMISED = [
    pytest.param(make, check, id=f"{guarantee}-{check.__name__}")
    for guarantee, make, checks in (("atomic", transactional, ATOMIC), ("ordered", acknowledged, ORDERED))
    for check in checks
]


def case_of(make: Make, kafka_sides: tuple[Cluster, Cluster]) -> TransactionCase:
    target = kafka_sides[1]
    return TransactionCase(KafkaGround(target), lambda id_: make(id_, {"bootstrap.servers": target.bootstrap}))


@pytest.mark.parametrize(("make", "check"), PROMISED)
def test_transaction(make: Make, check: Check, kafka_sides: tuple[Cluster, Cluster]) -> None:
    check(case_of(make, kafka_sides))


def test_what_is_flushed_stands_on_the_log_and_is_hidden(kafka_sides: tuple[Cluster, Cluster]) -> None:
    case, admin = case_of(transactional, kafka_sides), kafka_sides[1].admin
    at = TopicPartition(case.topic, 0)
    with case.fenced() as session:
        session.begin()
        case.send(session, b"1")
        session.flush()
        assert (offsets.high_watermarks(admin, [at])[at], offsets.last_stable(admin, [at])[at]) == (1, 0)
        session.commit()
    assert case.visible() == [b"1"]


@pytest.mark.parametrize(("broken", "noticed_by"), ALL, ids=lambda part: getattr(part, "__name__", "?"))
def test_a_broken_transaction_is_noticed(
    broken: type[Broken], noticed_by: Check, kafka_sides: tuple[Cluster, Cluster]
) -> None:
    case = case_of(transactional, kafka_sides)
    case.make = lambda id_: broken(id_, kafka_sides[1])
    with pytest.raises(AssertionError):
        noticed_by(case)


@pytest.mark.parametrize(("broken", "noticed_by"), UNORDERED, ids=lambda part: getattr(part, "__name__", "?"))
def test_a_broken_order_is_noticed(
    broken: type[Unordered], noticed_by: Check, kafka_sides: tuple[Cluster, Cluster]
) -> None:
    case = case_of(acknowledged, kafka_sides)
    case.make = lambda _: broken(kafka_sides[1])
    with pytest.raises(AssertionError):
        noticed_by(case)
