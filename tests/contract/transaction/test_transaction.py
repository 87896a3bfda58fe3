"""The conformance suite of transaction ports, on the confluent-kafka producer; and broken ones, which it must notice."""

from __future__ import annotations

import pytest

from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.runtime.deadline import NEVER
from tests.contract.copy_case import SETTINGS
from tests.contract.transaction.broken import ALL, Broken
from tests.contract.transaction.checks import CHECKS, Check, TransactionCase
from tests.support.scenario import Cluster


@pytest.fixture(params=["confluent-kafka"])
def case(kafka_sides: tuple[Cluster, Cluster]) -> TransactionCase:
    target = kafka_sides[1]
    config = {"bootstrap.servers": target.bootstrap}
    return TransactionCase(target, lambda id_: TransactionalProducer(id_, "contract", config, SETTINGS, NEVER))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_transaction(check: Check, case: TransactionCase) -> None:
    check(case)


@pytest.mark.parametrize(("broken", "noticed_by"), ALL, ids=lambda part: getattr(part, "__name__", "?"))
def test_a_broken_transaction_is_noticed(broken: type[Broken], noticed_by: Check, case: TransactionCase) -> None:
    case.make = lambda id_: broken(id_, case.cluster)
    with pytest.raises(AssertionError):
        noticed_by(case)
