"""What librdkafka says of a connection, and what it means."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError

from kafka_replication.kafka.client.client_errors import ReportedErrors
from kafka_replication.kafka.diagnosis import causes, connect_diagnosis, probe
from kafka_replication.kafka.diagnosis.causes import ConnectCause
from kafka_replication.model.errors import BadInput, NotResolved, TlsFailed, Unreachable

# As librdkafka 2.16.0 says it of brokers of Kafka 4.3.1.
SAID = [
    ("SASL authentication error: Authentication failed: Invalid username or password", causes.LOGIN_REFUSED),
    (
        "SASL authentication error: Authentication failed during authentication due to invalid credentials with SASL"
        " mechanism SCRAM-SHA-512",
        causes.LOGIN_REFUSED,
    ),
    (
        "SASL SCRAM-SHA-256 mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported"
        " mechanisms: PLAIN,SCRAM-SHA-512",
        causes.MECHANISM_NOT_ENABLED,
    ),
    (
        "SASL PLAIN mechanism handshake failed: Broker: Request not valid in current SASL state: broker's supported"
        " mechanisms: ",
        causes.LOGIN_NOT_EXPECTED,
    ),
    (
        "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker certificate could not be"
        " verified, verify that ssl.ca.location is correctly configured",
        causes.CERTIFICATE_NOT_VERIFIED,
    ),
    (
        "Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert number 42",
        causes.CLIENT_CERTIFICATE_REFUSED,
    ),
    (
        "SSL handshake failed: Disconnected: SSL connection closed by peer: connecting to a PLAINTEXT broker listener?",
        causes.NO_ANSWER,  # a broker that stops says the same
    ),
    ("Failed to resolve 'no-such-host.invalid:9092': Name or service not known", causes.NAME_NOT_RESOLVED),
    ("Connect to ipv4#127.0.0.1:37061 failed: Connection refused", causes.REFUSED),
    ("Receive failed: Invalid response size 1213486160 (0..100000000): increase receive.message.max", causes.NO_KAFKA),
]


@pytest.mark.parametrize(("said", "cause"), SAID, ids=[cause.name for _, cause in SAID])
def test_a_text_of_the_client_has_a_cause(said: str, cause: ConnectCause) -> None:
    reported = ReportedErrors()
    reported(KafkaError(KafkaError._TRANSPORT, f"sasl_ssl://b1:9094/bootstrap: {said} (after 302ms in state AUTH_REQ)"))
    assert reported.by_address == {"b1:9094": said}
    assert causes.of_text(said) == cause


def test_only_answers_are_final() -> None:
    assert not any(cause.is_final for cause in (causes.NO_ANSWER, causes.REFUSED, causes.NO_KAFKA))
    assert causes.of_text("something new") is None


def test_the_newest_error_of_an_address_counts_and_the_users_callback_is_called() -> None:
    also: list[KafkaError] = []
    reported = ReportedErrors(also=also.append)
    for said in ("first", "second"):
        reported(KafkaError(KafkaError._TRANSPORT, f"b1:9092/1: {said}"))
    reported(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert reported.by_address == {"b1:9092": "second"} and len(also) == 3


@pytest.mark.parametrize(
    ("servers", "found"),
    [
        ("b1", ["b1:9092"]),
        ("b1:1, SSL://b2:2", ["b1:1", "b2:2"]),
        ("[::1]:9,[::1]", ["[::1]:9", "[::1]:9092"]),
    ],
)
def test_bootstrap_addresses(servers: str, found: list[str]) -> None:
    assert probe.addresses({"bootstrap.servers": servers}) == found


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A program that gives each connection the same answers, and closes it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                for answer in answers:
                    connection.recv(1000)
                    connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_a_program_that_is_no_broker_is_not_called_one() -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        assert probe.probe(address, {}) is None
        found = connect_diagnosis.look(
            {"bootstrap.servers": address}, {address: "Receive failed: Invalid response size 12"}
        )
    assert found[address].name == "no-kafka"


def test_some_addresses_that_may_still_answer_are_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"127.0.0.1:{listener.getsockname()[1]}"
    settings = {"bootstrap.servers": f"no-such-host.invalid:1,{closed}"}
    found = connect_diagnosis.look(settings, {})
    assert {cause.name for cause in found.values()} == {"unknown-host-name", "tcp-refused"}
    assert not connect_diagnosis.is_final(settings, found)
    error = connect_diagnosis.error_of(settings, found, "", 18)
    assert type(error) is Unreachable and "within 18 s" in error.what and closed in error.what


def test_a_name_that_cannot_be_resolved_is_final_for_now() -> None:
    settings = {"bootstrap.servers": "no-such-host.invalid:1"}
    found = connect_diagnosis.look(settings, {})
    assert connect_diagnosis.is_final(settings, found)
    error = connect_diagnosis.error_of(settings, found, "")
    assert isinstance(error, NotResolved) and error.retriable


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("ssl.ca.location failed: error:05880020:x509 certificate routines::BIO lib", "/no/ca.pem, which does not"),
        ("ssl.key.pem failed: error:05800074:x509 certificate routines::key values mismatch", "belong to the cert"),
    ],
)
def test_a_file_that_is_missing_is_named(reason: str, words: str) -> None:
    settings = {"bootstrap.servers": "b1:1", "ssl.ca.location": "/no/ca.pem", "ssl.key.pem": "hidden-word"}
    error = connect_diagnosis.unusable(settings, f"Failed to create admin client: {reason}")
    assert isinstance(error, TlsFailed) and words in error.what and "hidden-word" not in str(error)


def test_other_settings_are_not_about_tls() -> None:
    assert type(connect_diagnosis.unusable({}, 'No such configuration property: "colour"')) is BadInput
