"""Which of Kafka's errors a retry may heal is a fact of our type for it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from kafka_replication.kafka.clients import translate
from kafka_replication.model.errors import Fenced, NotAuthenticated, NotAuthorized, Refused, Unreachable


@pytest.mark.parametrize(
    ("code", "kind", "retriable"),
    [
        (KafkaError.REQUEST_TIMED_OUT, Unreachable, True),
        (KafkaError.NOT_ENOUGH_REPLICAS, Unreachable, True),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Unreachable, True),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, Unreachable, True),
        (KafkaError._TRANSPORT, Unreachable, True),
        (KafkaError._MSG_TIMED_OUT, Unreachable, True),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, Unreachable, True),  # ends the session; the ledger says what is left
        (KafkaError._FENCED, Fenced, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAuthorized, False),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, Refused, False),
        (KafkaError.POLICY_VIOLATION, Refused, False),
        (KafkaError._AUTHENTICATION, NotAuthenticated, False),
    ],
)
def test_a_kafka_error_is_one_of_ours(code: int, kind: type, retriable: bool) -> None:
    found = translate(KafkaError(code, "why"), "sending")
    assert (type(found), found.retriable) == (kind, retriable)
    assert found.what.startswith("sending: ")
    assert found.remedy
