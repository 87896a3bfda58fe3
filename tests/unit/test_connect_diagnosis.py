"""What librdkafka says of a connection, and what it means."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError
from hypothesis import assume, given
from hypothesis import strategies as st

from kafka_replication.kafka import causes, clients, connect_diagnosis, probe
from kafka_replication.kafka.callbacks import ReportedErrors
from kafka_replication.kafka.causes import ConnectCause
from kafka_replication.model.errors import BadInput, NotResolved, TlsFailed, Unreachable

AUTHENTICATION, SSL, TRANSPORT = KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._TRANSPORT
# As librdkafka 2.15.0 and 2.16.0 say it of brokers of Kafka 4.3.1.
SAID = [
    (
        AUTHENTICATION,
        "SASL authentication error: Authentication failed: Invalid username or password",
        causes.LOGIN_REFUSED,
    ),
    (
        AUTHENTICATION,
        "SASL authentication error: Authentication failed during authentication due to invalid credentials with SASL"
        " mechanism SCRAM-SHA-512",
        causes.LOGIN_REFUSED,
    ),
    (
        AUTHENTICATION,
        "SASL SCRAM-SHA-256 mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported"
        " mechanisms: PLAIN,SCRAM-SHA-512",
        causes.MECHANISM_NOT_ENABLED,
    ),
    (
        AUTHENTICATION,
        "SASL PLAIN mechanism handshake failed: Broker: Request not valid in current SASL state: broker's supported"
        " mechanisms: ",
        causes.LOGIN_NOT_EXPECTED,
    ),
    (
        SSL,
        "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker certificate could not be"
        " verified, verify that ssl.ca.location is correctly configured",
        causes.CERTIFICATE_NOT_VERIFIED,
    ),
    (
        TRANSPORT,
        "Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert number 42",
        causes.CLIENT_CERTIFICATE_REFUSED,
    ),
    (
        TRANSPORT,
        "SSL handshake failed: Disconnected: SSL connection closed by peer: connecting to a PLAINTEXT broker listener?",
        causes.NO_ANSWER,  # a broker that stops says the same
    ),
    (
        KafkaError._RESOLVE,
        "Failed to resolve 'no-such-host.invalid:9092': Name or service not known",
        causes.NAME_NOT_RESOLVED,
    ),
    (TRANSPORT, "Connect to ipv4#127.0.0.1:37061 failed: Connection refused", causes.REFUSED),
    (
        KafkaError._BAD_MSG,
        "Receive failed: Invalid response size 1213486160 (0..100000000): increase receive.message.max",
        causes.NO_KAFKA,
    ),
]


@pytest.mark.parametrize(("code", "said", "cause"), SAID, ids=[cause.name for *_, cause in SAID])
def test_a_text_of_the_client_has_a_cause(code: int, said: str, cause: ConnectCause) -> None:
    reported = ReportedErrors()
    reported(KafkaError(code, f"sasl_ssl://b1:9094/bootstrap: {said} (after 302ms in state AUTH_REQ)"))
    kept = f"{KafkaError(code).name()}: {said}"
    assert reported.by_address == {"b1:9094": kept}
    assert causes.of_text(kept) == cause


CODES = [code for name in dir(KafkaError) if isinstance(code := getattr(KafkaError, name), int)]
BY_CODE = {AUTHENTICATION: causes.LOGIN_FAILED, SSL: causes.TLS_FAILED, KafkaError._RESOLVE: causes.NAME_NOT_RESOLVED}
# Texts of a version that nobody has seen: words of the known ones, and others, in any order.
WORDS = [word for _, said, _ in SAID for word in said.split()] + ["SASL", "SSL", "handshake", "certificate", "alert"]
UNKNOWN = st.lists(st.sampled_from(WORDS) | st.text(st.characters(codec="ascii", categories=["L", "P"])), max_size=12)
# What two versions say, word for word: with it a text is not unknown.
KNOWN = re.compile(
    "disconnected|transport failure|timed out|unsupported sasl mechanism|not valid in current sasl state"
    "|authentication failed|invalid credentials|alert|certificate verify failed|connection refused"
    "|invalid response size",
    re.IGNORECASE,
)


@given(st.sampled_from(CODES), UNKNOWN)
def test_of_a_text_that_is_not_known_only_the_code_counts(code: int, words: list[str]) -> None:
    said, name = " ".join(words).strip(), KafkaError(code).name()
    assume(said and not KNOWN.search(said))
    reported = ReportedErrors()
    reported(KafkaError(code, f"b1:9094/bootstrap: {said}"))
    [kept] = reported.by_address.values()
    assert kept == f"{name}: {said}"
    assert causes.of_text(kept) == BY_CODE.get(code)


@given(st.sampled_from(CODES), st.sampled_from(SAID))
def test_a_known_text_with_another_code_is_not_known(code: int, known: tuple[int, str, ConnectCause]) -> None:
    of_code, said, cause = known
    found = causes.of_text(f"{KafkaError(code).name()}: {said}")
    assert code == of_code or cause is causes.NO_ANSWER or found in {BY_CODE.get(code), *NEAR.get(cause.name, ())}


NEAR = {"client-certificate-refused": {causes.CLIENT_CERTIFICATE_REFUSED}}


@given(UNKNOWN)
def test_an_unknown_reason_for_no_client_is_told_as_it_is(words: list[str]) -> None:
    reason = f"_INVALID_ARG: {' '.join(words)}"
    assume(not any(known in reason for known in ("No provider for SASL mechanism GSSAPI", "No such configuration")))
    settings = {"bootstrap.servers": "b1:1", "ssl.key.pem": "ENCRYPTED", "ssl.key.password": "hidden-word"}
    error = connect_diagnosis.unusable(settings, reason)
    assert type(error) is BadInput and error.what.endswith(f"not usable: {reason.strip()}")
    error = connect_diagnosis.unusable(settings, f"_INVALID_ARG: ssl.key.pem failed: something new {words}")
    told = KNOWN_OF_KEYS.search(str(words))
    assert type(error) is TlsFailed and ("_INVALID_ARG" in error.what or told) and "hidden-word" not in str(error)


KNOWN_OF_KEYS = re.compile("PEM lib|bad decrypt|password|cipherfinal|asn1|key values mismatch")


def test_what_no_table_knows_is_told_with_its_code() -> None:
    """A program that takes connections, and of which nobody knows what is wrong."""
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        found = connect_diagnosis.look({"bootstrap.servers": address}, {address: "_TRANSPORT: something new"})
    assert found == {}
    error = connect_diagnosis.error_of({"bootstrap.servers": address}, found, "_TRANSPORT: something new", 18)
    assert type(error) is Unreachable and error.what.endswith("within 18 s: _TRANSPORT: something new")


def test_a_client_without_a_connection_tells_codes_and_what_it_was_told() -> None:
    settings = clients.check_connection(
        "our_kafka", {"bootstrap.servers": "b1:9094", "socket.timeout.ms": "x"}, "source"
    )
    with pytest.raises(BadInput, match=r"not usable: _INVALID_ARG: .*socket\.timeout\.ms"):
        clients.admin(settings)
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address, pytest.raises(Unreachable) as caught:
        clients.admin({"bootstrap.servers": address}, 2.0)
    assert "does not speak Kafka's protocol (_BAD_MSG: Receive failed: Invalid response size" in caught.value.what


def test_only_answers_are_final() -> None:
    assert not any(cause.is_final for cause in (causes.NO_ANSWER, causes.REFUSED, causes.NO_KAFKA))
    assert causes.of_text("something new") is None


def test_the_newest_error_of_an_address_counts_and_the_users_callback_is_called() -> None:
    also: list[KafkaError] = []
    reported = ReportedErrors(also=also.append)
    for said in ("first", "second"):
        reported(KafkaError(KafkaError._TRANSPORT, f"b1:9092/1: {said}"))
    reported(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert reported.by_address == {"b1:9092": "_TRANSPORT: second"} and len(also) == 3


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
            {"bootstrap.servers": address}, {address: "_BAD_MSG: Receive failed: Invalid response size 12"}
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
