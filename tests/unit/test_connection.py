"""A broker, or what is taken for one, that answers with anything or not at all: errors of this package, nothing else."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kafka_replication.model.errors import NotAuthenticated, ReplicationError, Stalled, TlsFailed, Unreachable
from kafka_replication.wire import fetching, transactions
from kafka_replication.wire.connection import Connection
from kafka_replication.wire.login import Bearer, Login, Plain, Scram, Security
from kafka_replication.wire.oidc import Token, Tokens
from stack.ports import LOOPBACK
from tests.support.tls import Authority

Serve = Callable[[socket.socket], object]


@contextmanager
def served(serve: Serve, security: Security | None = None, timeout: float = 5.0) -> Iterator[Connection]:
    """A connection to something that does this with every connection."""
    with socket.create_server((LOOPBACK, 0)) as listening:

        def accept() -> None:
            accepted, _ = listening.accept()
            with accepted:
                serve(accepted)

        server = threading.Thread(target=accept, daemon=True)
        server.start()
        try:
            host, port = listening.getsockname()
            with closing(Connection(host, port, security or Security(), timeout)) as connection:
                yield connection
        finally:
            server.join(10)


def answering(*bodies: bytes) -> Serve:
    """Answers the requests of one connection, one after the other, with these bodies."""

    def serve(accepted: socket.socket) -> None:
        for number, body in enumerate(bodies, 1):
            accepted.recv(1 << 16)
            accepted.sendall(struct.pack(">ii", 4 + len(body), number) + body)
        accepted.recv(1)  # until the other side closes

    return serve


def saying(data: bytes) -> Serve:
    def serve(accepted: socket.socket) -> None:
        accepted.recv(1 << 16)
        accepted.sendall(data)

    return serve


def fetch(connection: Connection) -> object:
    fetching.ask(connection, "t", 0, 0, 1000, 0.1)
    return fetching.answer(connection)


def produce(connection: Connection) -> object:
    connection.send(0, 7, [b"x"])
    return transactions.produced(connection)


Ask = Callable[[Connection], object]
ASK: dict[str, Ask] = {
    "fetch": fetch,
    "epoch": lambda it: fetching.end_of_epoch(it, "t", 0, 3),
    "produce": produce,
    "add": lambda it: transactions.add_partition(it, "id", 1, 0, "t", 0),
    "abort": lambda it: transactions.abort(it, "id", 1, 0),
    "find": lambda it: transactions.find_coordinator(it, "id"),
}


def said(answer: bytes = b"", *, error: int = 0, lifetime: int = 0) -> bytes:
    """An answer to SaslAuthenticate, version 1, with milliseconds of the session."""
    return struct.pack(">hhi", error, -1, len(answer)) + answer + struct.pack(">q", lifetime)


LOGINS: dict[str, Login] = {
    "PLAIN": Plain("u", "p"),
    "SCRAM-SHA-256": Scram("SCRAM-SHA-256", "u", "p"),
    "OAUTHBEARER": Bearer("u", Tokens(lambda _: Token(value="t", expires=time.time() + 600), "a test"), "correct it"),
}
EMPTY = bytes(16)  # no error, no topic, no partition


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"\xff\xff\xff\xff",
        b"\0\0\0\0",
        b"\0\0\0\2ab",
        struct.pack(">ii", 4, 2),
        struct.pack(">ii", 4, 1),
        struct.pack(">ii", 10, 1) + b"\x7f" * 6,
        struct.pack(">ii", 100, 1) + b"x",
        b"",
    ],
    ids=["http", "tls", "negative", "empty", "short", "other", "nothing", "cut", "half", "closed"],
)
def test_an_answer_that_is_none(ask: Ask, answer: bytes) -> None:
    with served(saying(answer)) as connection, pytest.raises(Unreachable):
        ask(connection)


@pytest.mark.parametrize("ask", [ASK["epoch"], ASK["add"]], ids=["epoch", "add"])
def test_an_answer_about_nothing(ask: Ask) -> None:
    with served(answering(EMPTY)) as connection, pytest.raises(Unreachable, match="cannot be understood"):
        ask(connection)


def test_a_broker_whose_quota_is_used_up_gives_nothing_for_a_while() -> None:
    body = struct.pack(">ihii", 1500, 0, 0, 0)  # throttled for 1.5 s, no error, no session, no topics
    with served(answering(body)) as connection:
        assert fetch(connection) == (None, 1.5)


def test_an_error_that_this_version_does_not_know() -> None:
    with served(answering(struct.pack(">ih", 0, 9999))) as connection, pytest.raises(Unreachable, match="9999"):
        ASK["abort"](connection)


def test_after_an_error_nothing_is_waited_for() -> None:
    with served(lambda accepted: accepted.recv(1 << 16) and accepted.recv(1), timeout=0.2) as connection:
        with pytest.raises(Stalled):
            ASK["abort"](connection)
        for use in (connection.receive, lambda: connection.wait_at_most(600), lambda: connection.send(0, 7, [b""])):
            with pytest.raises(Unreachable):
                use()


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b", "x" * 64, ""], ids=["unknown", "dots", "long", "none"])
def test_a_host_that_has_no_address(host: str) -> None:
    with pytest.raises(Unreachable):
        Connection(host, 1, Security(), 5.0)


def test_a_name_of_the_client_is_told_to_the_broker() -> None:
    heard = list[bytes]()
    with served(lambda accepted: heard.append(accepted.recv(100)), Security(client="reports")) as connection:
        connection.send(0, 7, [b"x"])
    assert heard[0][8 + 4 :].startswith(b"\0\7reports")


def test_a_broker_that_goes_away_while_tls_begins_can_be_asked_again(tmp_path: Path) -> None:
    security = Security.of({"security.protocol": "SSL", "ssl.ca.location": str(Authority(tmp_path, "a").file)})
    with pytest.raises(Unreachable), served(saying(b""), security):
        pass
    with pytest.raises(TlsFailed), served(saying(b"\x15\x03\x03\x00\x02\x02\x28"), security):
        pass


@pytest.mark.parametrize("mechanism", LOGINS)
@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ((struct.pack(">hi", 33, 0),), NotAuthenticated),
        ((struct.pack(">hi", 0, 0), said(error=58)), NotAuthenticated),
        ((struct.pack(">hi", 0, 0), b"x"), Unreachable),
    ],
    ids=["mechanism", "refused", "malformed"],
)
def test_a_login_that_fails(mechanism: str, answers: tuple[bytes, ...], error: type[ReplicationError]) -> None:
    security = Security(login=LOGINS[mechanism])
    with pytest.raises(error), served(answering(*answers), security):
        pass


@pytest.mark.parametrize("offered", [(), ("PLAIN", "GSSAPI")], ids=["none", "others"])
def test_a_mechanism_that_a_broker_does_not_offer_has_a_remedy_of_its_own(offered: tuple[str, ...]) -> None:
    """No other password heals it."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in offered)
    answer = struct.pack(">hi", 33 if offered else 34, len(offered)) + names
    security = Security(login=LOGINS["SCRAM-SHA-256"])
    with pytest.raises(NotAuthenticated) as refused, served(answering(answer), security):
        pass
    assert f"it offers {', '.join(offered) or 'no login'}" in refused.value.what
    assert ("sasl.mechanism" if offered else "security.protocol") in refused.value.remedy


@pytest.mark.parametrize("answer", [b"\xff\xfe", b"r=1", b"", b"e=other-error"])
def test_a_login_with_an_answer_that_is_none(answer: bytes) -> None:
    security = Security(login=LOGINS["SCRAM-SHA-256"])
    message = said(answer)
    with pytest.raises((NotAuthenticated, Unreachable)), served(answering(struct.pack(">hi", 0, 0), message), security):
        pass


def test_a_token_that_is_refused_is_not_used_again() -> None:
    """The broker says so in an answer without an error, and gives the error when it was confirmed (RFC 7628)."""
    bearer = LOGINS["OAUTHBEARER"]
    assert isinstance(bearer, Bearer)
    first = bearer.tokens.current(5)
    assert bearer.tokens.current(5) is first
    refused = answering(struct.pack(">hi", 0, 0), said(b'{"status":"invalid_token"}'), said(error=58))
    with pytest.raises(NotAuthenticated, match="login of u with OAUTHBEARER"), served(refused, Security(login=bearer)):
        pass
    assert bearer.tokens.current(5) is not first


class Sessions:
    """A broker that ends sessions after some seconds, and answers all other requests with their correlation id."""

    def __init__(self, seconds: float) -> None:
        self.heard, self._lifetime = list[int](), said(lifetime=int(seconds * 1000))

    def __call__(self, accepted: socket.socket) -> None:
        while size := accepted.recv(4, socket.MSG_WAITALL):
            request = accepted.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
            key, _, correlation = struct.unpack_from(">hhi", request)
            self.heard.append(key)
            special = {HANDSHAKE: struct.pack(">hi", 0, 0), AUTHENTICATE: self._lifetime}
            body = struct.pack(">i", correlation) + special.get(key, struct.pack(">i", correlation))
            accepted.sendall(struct.pack(">i", len(body)) + body)


HANDSHAKE, AUTHENTICATE, PRODUCE = 17, 36, 0


def test_a_login_ends_and_is_renewed_between_requests_that_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, clock = Sessions(100), time.monotonic
    with served(broker, Security(login=LOGINS["PLAIN"])) as connection:
        for expected in (1, 2):
            connection.send(PRODUCE, 7, [b"x"])
            assert connection.open_requests == expected
        monkeypatch.setattr(time, "monotonic", lambda: clock() + 90)
        connection.send(PRODUCE, 7, [b"x"])
        assert connection.open_requests == 3
        assert [struct.unpack(">i", connection.receive())[0] for _ in range(3)] == [3, 4, 7]
        assert connection.open_requests == 0
    login = [HANDSHAKE, AUTHENTICATE]
    assert broker.heard == [*login, PRODUCE, PRODUCE, *login, PRODUCE]


def test_a_login_without_an_end_is_not_renewed() -> None:
    broker = Sessions(0)
    with served(broker, Security(login=LOGINS["PLAIN"])) as connection:
        connection.send(PRODUCE, 7, [b"x"])
        connection.receive()
    assert broker.heard == [HANDSHAKE, AUTHENTICATE, PRODUCE]
