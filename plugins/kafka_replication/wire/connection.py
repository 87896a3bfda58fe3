"""One connection to one broker: requests, and their answers in the same order."""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, Self, TypeVar

from kio.schema.sasl_authenticate.v0.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v0.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from kio.serial import entity_reader, entity_writer

from kafka_replication.model.errors import NotAuthenticated, Stalled, TlsFailed, Unreachable
from kafka_replication.wire.security import Security

A = TypeVar("A")
Buffer = bytes | bytearray | memoryview
CLIENT = b"kafka-replication"
CONNECT = 30.0  # seconds for connecting and logging in
_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(f">hhih{len(CLIENT)}s")  # key, version, correlation id, client id


class Connection:
    """Raises Unreachable, Stalled after ``timeout`` seconds without an answer, NotAuthenticated and TlsFailed.

    After an error it is of no use.
    """

    def __init__(self, host: str, port: int, security: Security, timeout: float) -> None:
        self.address = f"{host}:{port}"
        self._correlation, self._oldest = 0, 0  # ids of the request that was sent last, and was answered last
        try:
            self._socket = socket.create_connection((host, port), timeout=min(CONNECT, timeout))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is not None:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=host)
        except OSError as e:
            raise self._failed(e) from e
        self._tls = security.tls is not None
        try:
            if security.mechanism:
                _Login(self, security).log_in()
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
        """For each answer, from now on."""
        self._socket.settimeout(seconds)

    @property
    def open_requests(self) -> int:
        """How many requests have no answer yet."""
        return self._correlation - self._oldest

    def ask(self, request: Any, answer: type[A]) -> A:
        """Send a request of kio, and return its answer. No other request may be open."""
        self.request(request)
        return self.answer(answer)

    def request(self, request: Any) -> None:
        """Send a request of kio."""
        body = io.BytesIO()
        _writer(request.__class__)(body, request)
        self.send(request.__api_key__, request.__version__, [body.getvalue()])

    def answer(self, kind: type[A]) -> A:
        """The answer to the oldest open request, as kio reads it."""
        of_kind: Any = kind  # a class can be hashed
        parsed, _ = _reader(of_kind)(self.receive(), 0)
        return parsed  # type: ignore[no-any-return]

    def send(self, key: int, version: int, body: Sequence[Buffer]) -> None:
        """Send a request whose body is the concatenation of these buffers."""
        self._correlation += 1
        header = _HEADER.pack(key, version, self._correlation, len(CLIENT), CLIENT)
        size = len(header) + sum(map(len, body))
        try:
            self._send([_LENGTH.pack(size) + header, *body], 4 + size)
        except OSError as e:
            raise self._failed(e) from e

    def _send(self, buffers: Sequence[Buffer], size: int) -> None:
        if self._tls or (sent := self._socket.sendmsg(buffers)) < size:
            skipped = 0 if self._tls else sent
            for buffer in buffers:
                if skipped < len(buffer):
                    self._socket.sendall(memoryview(buffer)[skipped:])
                skipped = max(0, skipped - len(buffer))

    def receive(self) -> memoryview:
        """The body of the answer to the oldest open request."""
        size = _LENGTH.unpack(self._read(4))[0]
        answer = self._read(size)
        self._oldest += 1
        if _LENGTH.unpack_from(answer)[0] != self._oldest:
            raise Unreachable(f"{self.address}: an answer to another request came", "run again")
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

    def _failed(self, error: OSError) -> Unreachable | TlsFailed:
        if isinstance(error, TimeoutError):
            return Stalled(f"{self.address} did not answer in time", "check the broker, then run again")
        if type(error).__module__ == "ssl":
            return TlsFailed(f"{self.address}: {error}", "correct the TLS settings of the connection or the broker")
        return Unreachable(f"{self.address}: {error}", "check the broker, then run again")


class _Login:
    """SASL on a new connection."""

    def __init__(self, connection: Connection, security: Security) -> None:
        self._connection, self._security = connection, security

    def log_in(self) -> None:
        handshake = self._connection.ask(
            SaslHandshakeRequest(mechanism=self._security.mechanism), SaslHandshakeResponse
        )
        self._check(handshake.error_code, f"it offers {', '.join(handshake.mechanisms)}")
        if self._security.mechanism == "PLAIN":
            self._exchange(f"\0{self._security.user}\0{self._security.password}")
        else:
            self._scram()

    def _scram(self) -> None:
        from scramp import ScramClient, ScramException

        client = ScramClient([self._security.mechanism], self._security.user, self._security.password)
        try:
            client.set_server_first(self._exchange(client.get_client_first()))
            client.set_server_final(self._exchange(client.get_client_final()))
        except ScramException as e:
            raise self._denied(str(e)) from e

    def _exchange(self, message: str) -> str:
        answer = self._connection.ask(SaslAuthenticateRequest(auth_bytes=message.encode()), SaslAuthenticateResponse)
        self._check(answer.error_code, answer.error_message or "")
        return bytes(answer.auth_bytes).decode()

    def _check(self, error: int, why: str) -> None:
        if error:
            raise self._denied(why)

    def _denied(self, why: str) -> NotAuthenticated:
        return NotAuthenticated(
            f"{self._connection.address} refuses the login of {self._security.user} with {self._security.mechanism}:"
            f" {why}",
            "correct sasl.username and sasl.password of the connection",
        )


@cache
def _writer(kind: Any) -> Any:
    return entity_writer(kind)


@cache
def _reader(kind: Any) -> Any:
    return entity_reader(kind)
