"""What each error code of Kafka means: a retry may help or not, and what the person does."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from kafka_replication.kafka.callbacks import ReportedErrors
from kafka_replication.kafka.connect_diagnosis import CONNECTION, SIDE, Asked, translate
from kafka_replication.kafka.error_table import TABLE, row_of
from kafka_replication.model.errors import (
    Fenced,
    GapFound,
    NotAuthenticated,
    NotAuthorized,
    NotReady,
    NotResolved,
    RecordRefused,
    Refused,
    SessionEnded,
    TlsFailed,
    Unexpected,
    Unreachable,
)
from kafka_replication.model.rights import Operation

CODES = {
    name: code
    for name in dir(KafkaError)
    if not name.startswith("__") and isinstance(code := getattr(KafkaError, name), int)
}


@pytest.mark.parametrize("name", CODES)
def test_every_code_of_the_client_has_a_row(name: str) -> None:
    """A new version of the client may bring codes: say in the table what they mean."""
    row = TABLE[CODES[name]]
    assert row.name == name and row.remedy
    found = translate(KafkaError(CODES[name], "why"), "sending")
    assert type(found) is row.kind
    assert found.what.startswith("sending: ") and name in found.what and found.remedy


def test_no_code_is_in_two_rows() -> None:
    assert len(TABLE) == len(set(CODES.values())) == len({row.name for row in TABLE.values()})


@pytest.mark.parametrize(
    ("code", "kind", "retriable"),
    [
        (KafkaError.REQUEST_TIMED_OUT, Unreachable, True),
        (KafkaError._TRANSPORT, Unreachable, True),
        (KafkaError._MSG_TIMED_OUT, Unreachable, True),
        (KafkaError._RESOLVE, NotResolved, True),
        (KafkaError.NOT_ENOUGH_REPLICAS, NotReady, True),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, NotReady, True),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, NotReady, True),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, SessionEnded, True),  # the ledger says what is left
        (KafkaError._FENCED, Fenced, False),
        (KafkaError.INVALID_PRODUCER_EPOCH, Fenced, False),
        (KafkaError.PRODUCER_FENCED, Fenced, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAuthorized, False),
        (KafkaError.DELEGATION_TOKEN_EXPIRED, NotAuthenticated, False),
        (KafkaError._AUTHENTICATION, NotAuthenticated, False),
        (KafkaError._SSL, TlsFailed, False),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, Refused, False),
        (KafkaError.INVALID_REPLICATION_FACTOR, Refused, False),
        (KafkaError.POLICY_VIOLATION, Refused, False),
        (KafkaError.MSG_SIZE_TOO_LARGE, RecordRefused, False),
        (KafkaError.OFFSET_OUT_OF_RANGE, GapFound, False),
        (KafkaError.UNKNOWN_MEMBER_ID, Unexpected, False),
    ],
)
def test_whether_a_retry_can_help_is_a_fact_of_the_type(code: int, kind: type, retriable: bool) -> None:
    found = translate(KafkaError(code, "why"), "sending")
    assert (type(found), found.retriable, found.exit_code) == (kind, retriable, 1)


def test_only_three_codes_mean_fenced() -> None:
    """Fencing is never retried in place; anything else that were called so would end the work of a lonely copier."""
    assert {row.name for row in TABLE.values() if row.kind is Fenced} == {
        "_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "PRODUCER_FENCED",
    }


@dataclass(frozen=True)
class Flags:
    """An error of a newer broker, as the client gives it."""

    fatal: bool = False
    retriable: bool = False
    abort: bool = False


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        (Flags(), Unexpected),
        (Flags(retriable=True), NotReady),
        (Flags(abort=True), SessionEnded),
        (Flags(fatal=True), Unexpected),
        (Flags(fatal=True, retriable=True), Unexpected),
    ],
)
def test_where_the_table_is_silent_the_flags_of_the_client_count(flags: Flags, kind: type) -> None:
    error = KafkaError(9_999, "new", flags.fatal, flags.retriable, flags.abort)
    assert row_of(error).kind is kind


CLIENT = SimpleNamespace(
    reported=ReportedErrors(
        {
            "bootstrap.servers": "kafka:9094",
            SIDE: "target",
            CONNECTION: "kafka_target",
            "security.protocol": "SASL_SSL",
            "sasl.username": "replicator",
        }
    )
)


def test_a_missing_right_is_named_with_the_command_that_grants_it() -> None:
    asked = Asked.of(
        CLIENT, topic=(Operation.WRITE, "orders"), transactional_id=(Operation.WRITE, "kafka-replication/dr/opening")
    )
    topic = translate(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "orders-0: sending", asked)
    assert isinstance(topic, NotAuthorized)
    assert topic.what == (
        "orders-0: sending: target kafka:9094 (connection 'kafka_target'): Write on topic orders is missing"
    )
    assert "--add --allow-principal User:replicator --operation Write --topic orders; if it" in topic.remedy
    transactional = translate(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), "fencing", asked)
    assert transactional.what.startswith("fencing as kafka-replication/dr/opening: ")
    assert "id whose name begins with kafka-replication/dr/ is missing" in transactional.what
    group = translate(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), "reading", asked)
    assert isinstance(group, NotAuthorized) and "GROUP_AUTHORIZATION_FAILED" in group.what, "nobody said which group"


def test_other_errors_name_the_side() -> None:
    found = translate(KafkaError(KafkaError.REQUEST_TIMED_OUT), "listing topics", Asked.of(CLIENT))
    assert found.what.startswith("listing topics: target kafka:9094 (connection 'kafka_target'): REQUEST_TIMED_OUT: ")
