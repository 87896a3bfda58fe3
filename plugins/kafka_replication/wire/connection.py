"""One connection to one broker: requests, and their answers in the same order."""

from __future__ import annotations

import io
import math
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Self, TypeVar, cast

from kio.schema.sasl_authenticate.v1.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v1.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from kio.serial import entity_reader, entity_writer

from kafka_replication.model.errors import NotAuthenticated, Stalled, TlsFailed, Unreachable
from kafka_replication.wire.login import Login, Security

A = TypeVar("A")
_CUT = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)  # the connection ended
Buffer = bytes | bytearray | memoryview
CONNECT = 30.0  # seconds for connecting and logging in
# Of a session's life; then the connection logs in again (KIP-368). The rest is for requests that wait in the network
# and behind others: a broker closes the connection on a request that comes later. Longer than a token is fresh, so that
# the new session gets a new token.
SESSION = 0.85
BETWEEN_LOGINS = 1.1  # seconds. Brokers refuse a connection that logs in again within one second
LARGEST = 256 << 20  # bytes of an answer. In other protocols' answers the same bytes are text, or a larger number
_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")  # key, version, correlation id, length of the client's name
_NO_TAGS = b"\0"  # the header of a flexible version ends with its tags
_writer, _reader = cast("Any", cache(entity_writer)), cast("Any", cache(entity_reader))


class Connection:
    """Raises Unreachable, Stalled after ``timeout`` seconds without an answer, NotAuthenticated and TlsFailed.

    After an error it is of no use. Where brokers end a login's session after a while, sending a request logs in again
    first. What was sent before is then waited for, and returned later, in the same order.
    """

    def __init__(self, host: str, port: int, security: Security, timeout: float) -> None:
        self.address = f"{host}:{port}"
        self._correlation, self._oldest = 0, 0  # ids of the request that was sent last, and was answered last
        self._answers = deque[memoryview]()  # came while the connection logged in again, and nobody asked for them yet
        self._login = security.login
        # The next login, and its earliest time, on the monotonic clock.
        self._login_at, self._may_log_in = math.inf, 0.0
        self._client, self._tls = security.client.encode(), security.tls is not None
        try:
            self._socket = socket.create_connection((host, port), timeout=min(CONNECT, timeout))
        except (OSError, UnicodeError) as e:  # UnicodeError: for an invalid host name
            raise self._error(e) from e
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is not None:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=host)
        except (OSError, ValueError) as e:  # the latter for a name that no certificate can have
            raise self._failed(e) from e
        try:
            self._log_in()
        except BaseException:
            self.close()
            raise
        self._socket.settimeout(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def wait_at_most(self, seconds: float) -> None:
        """Wait at most ``seconds`` for each answer, from now on."""
        try:
            self._socket.settimeout(seconds)
        except OSError as e:  # it is closed
            raise self._failed(e) from e

    @property
    def open_requests(self) -> int:
        """The number of requests whose answer was not taken yet."""
        return self._correlation - self._oldest + len(self._answers)

    def ask(self, request: Any, answer: type[A]) -> A:
        """Send a request of kio, and return its answer. No other request may be open."""
        self.request(request)
        return self.answer(answer)

    def request(self, request: Any) -> None:
        """Send a request of kio."""
        body = io.BytesIO()
        _writer(request.__class__)(body, request)
        tags = [_NO_TAGS] if request.__flexible__ else []
        self.send(request.__api_key__, request.__version__, [*tags, body.getvalue()])

    def answer(self, kind: type[A]) -> A:
        """The answer to the oldest open request, as kio reads it."""
        of_kind, data = cast("Any", kind), self.receive()  # a class can be hashed
        with self.understanding():
            if of_kind.__flexible__:  # no version of Kafka has tags in the header of an answer
                if data[:1] != _NO_TAGS:
                    raise ValueError("its header has tags")
                data = data[1:]
            parsed, _ = _reader(of_kind)(data, 0)
        return cast("A", parsed)

    @contextmanager
    def understanding(self) -> Iterator[None]:
        """Turn every error while an answer is parsed into Unreachable, because the answer is wrong."""
        try:
            yield
        except Exception as e:  # kio raises errors of its own, and those of struct, enum and str
            self.close()
            raise Unreachable(
                f"{self.address}: the answer cannot be understood ({type(e).__name__}: {e})",
                "check that this is the address of a Kafka broker",
            ) from e

    def send(self, key: int, version: int, body: Sequence[Buffer]) -> None:
        """Send a request whose body is the concatenation of these buffers."""
        if time.monotonic() >= self._login_at:
            self._log_in_again()
        self._correlation += 1
        header = _HEADER.pack(key, version, self._correlation, len(self._client)) + self._client
        size = len(header) + sum(map(len, body))
        buffers = [_LENGTH.pack(size) + header, *body]
        try:
            skipped = 0 if self._tls else self._socket.sendmsg(buffers)
            for buffer in buffers if skipped < 4 + size else ():
                if skipped < len(buffer):
                    self._socket.sendall(memoryview(buffer)[skipped:])
                skipped = max(0, skipped - len(buffer))
        except OSError as e:
            raise self._failed(e) from e

    def receive(self) -> memoryview:
        """The body of the answer to the oldest open request."""
        return self._answers.popleft() if self._answers else self._receive()

    def _receive(self) -> memoryview:
        size = _LENGTH.unpack(self._read(4))[0]
        with self.understanding():
            if not 4 <= size <= LARGEST:
                raise ValueError(f"{size} bytes")
        answer = self._read(size)
        self._oldest += 1
        with self.understanding():
            if _LENGTH.unpack_from(answer)[0] != self._oldest:
                raise ValueError("it is for another request")
        return answer[4:].toreadonly()  # which kio insists on

    def _read(self, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        arrived = 0
        try:
            while arrived < size:
                count = self._socket.recv_into(data[arrived:])
                if not count:
                    raise ConnectionResetError("the broker closed the connection")
                arrived += count
        except OSError as e:
            raise self._failed(e) from e
        return data

    def _log_in_again(self) -> None:
        """Log in on this connection, when all is answered that was sent: brokers take nothing else while it lasts."""
        try:
            answers, self._answers = self._answers, deque()  # put aside: the login takes its own ones
            while self._correlation > self._oldest:
                answers.append(self._receive())
            time.sleep(max(0.0, self._may_log_in - time.monotonic()))
            self._log_in()
            self._answers = answers
        except BaseException:  # also a signal: the broker may wait for the rest of the login
            self.close()
            raise

    def _log_in(self) -> None:
        if (login := self._login) is None:
            return
        self._login_at, began = math.inf, time.monotonic()  # the requests of the login come first
        self._may_log_in = began + BETWEEN_LOGINS
        seconds = min(CONNECT, self._socket.gettimeout() or CONNECT)  # also for fetching a token
        lifetime = 0.0  # of the session, in seconds; 0 has no end

        def say(message: str) -> str:
            nonlocal lifetime
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=message.encode()), SaslAuthenticateResponse)
            if answer.error_code:
                raise self._denied(login, answer.error_message or "")
            with self.understanding():
                lifetime = answer.session_lifetime.total_seconds()
                return bytes(answer.auth_bytes).decode()

        handshake = self.ask(SaslHandshakeRequest(mechanism=login.mechanism), SaslHandshakeResponse)
        if handshake.error_code and not handshake.mechanisms:
            remedy = "set security.protocol of the connection to SSL or PLAINTEXT"
            raise self._denied(login, "it offers no login", remedy)
        if handshake.error_code:
            offers = f"it offers {', '.join(handshake.mechanisms)}"
            raise self._denied(login, offers, "set sasl.mechanism to one of these")
        try:
            login.exchange(say, seconds)
        except ValueError as e:
            raise self._denied(login, str(e)) from e
        if lifetime:
            self._login_at = began + SESSION * lifetime

    def _denied(self, login: Login, why: str, remedy: str = "") -> NotAuthenticated:
        return NotAuthenticated(
            f"{self.address} refuses the login of {login.who} with {login.mechanism}: {why}", remedy or login.remedy
        )

    def _failed(self, error: Exception) -> Unreachable | TlsFailed:
        self.close()  # nothing that is under way is waited for any more
        return self._error(error)

    def _error(self, error: Exception) -> Unreachable | TlsFailed:
        if isinstance(error, TimeoutError):
            return Stalled(f"{self.address} did not answer in time", "check the broker, then run again")
        if isinstance(error, ssl.SSLError) and not isinstance(error, _CUT):
            return TlsFailed(f"{self.address}: {error}", "correct the TLS settings of the connection or the broker")
        return Unreachable(f"{self.address}: {error}", "check the broker, then run again")
