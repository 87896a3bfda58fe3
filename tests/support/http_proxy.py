"""Between a client and a server: passes requests on, and does to some of them what networks and busy servers do."""

from __future__ import annotations

import itertools
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

Answer = tuple[int, bytes]
Pass = Callable[[bytes], Answer]  # passes a body on to the server
Fault = Callable[[str, bytes, Pass], Answer | None]  # of path, body; None: the connection is closed without an answer


def refused(status: int, kind: str) -> Answer:
    """The answer about a request as a whole."""
    return status, json.dumps({"error": {"type": kind, "reason": "said by the test"}, "status": status}).encode()


def writes_documents(method: str, path: str) -> bool:
    return "/_bulk" in path and not path.startswith("/kafka-replication.")


@dataclass
class Nth:
    """Which of several requests this is, also where they come at the same time: one of them alone is the ``number``-th."""

    number: int
    _count: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def is_this(self) -> bool:
        """To be asked once a request."""
        return next(self._count) == self.number


@dataclass
class Proxy:
    """``fault`` is asked about each request that writes documents, or about each that is ``wanted`` by method and path;
    without it all are passed on.
    """

    url: str
    fault: Fault | None = None
    wanted: Callable[[str, str], bool] | None = None
    logins: frozenset[str] | None = None  # values of the header ``authorization`` that are let in; None: any
    # One for all requests: each new one would read the certificates of this machine.
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=120))

    def behave(self) -> None:
        """Pass everything on."""
        self.fault = self.wanted = None

    def answer(self, method: str, path: str, body: bytes) -> Answer | None:
        def passed(body: bytes) -> Answer:
            headers = {"content-type": "application/json"}
            found = self.client.request(method, f"{self.url}{path}", content=body, headers=headers)
            return found.status_code, found.content

        fault, wanted = self.fault, self.wanted or writes_documents
        if fault is None or not wanted(method, path):
            return passed(body)
        return fault(path, body, passed)


@contextmanager
def running(proxy: Proxy, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of the proxy while it runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = (
            True  # a small body would wait for the client's delayed acknowledgement: 40 ms a request
        )

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            is_in = proxy.logins is None or self.headers.get("authorization") in proxy.logins
            try:
                answer = proxy.answer(self.command, self.path, body) if is_in else refused(401, "security_exception")
            except httpx.TransportError:  # the server is away
                answer = None
            if answer is None:
                self.close_connection = True
                return
            status, content = answer
            with suppress(OSError):  # the client did not wait for the answer
                self.send_response(status)
                self.send_header("content-type", "application/json; charset=UTF-8")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        proxy.client.close()
