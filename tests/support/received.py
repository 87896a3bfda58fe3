"""Where alerts arrive: a real SMTP server and a real HTTP server on the loopback, and what they have received."""

from __future__ import annotations

import email
import email.policy
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from stack.ports import LOOPBACK, free_ports


@dataclass(frozen=True, slots=True)
class Received:
    """One alert as it arrived. ``at`` is on the monotonic clock. ``type`` is Apprise's; a mail has none."""

    title: str
    text: str
    at: float
    type: str = ""


@dataclass
class Inbox:
    """What both servers have received, oldest first, and their addresses for Apprise."""

    smtp_port: int
    http_port: int
    mails: list[Received] = field(default_factory=list)
    posts: list[Received] = field(default_factory=list)

    @property
    def mail(self) -> str:
        return f"mailto://{LOOPBACK}:{self.smtp_port}?from=alerts@example.org&to=oncall@example.org&mode=insecure"

    @property
    def webhook(self) -> str:
        return f"json://{LOOPBACK}:{self.http_port}/alerts"

    @property
    def addresses(self) -> tuple[str, ...]:
        return self.mail, self.webhook

    @property
    def connection(self) -> str:
        """The connection as the environment has it."""
        paths = [{"path": address} for address in self.addresses]
        return json.dumps({"conn_type": "apprise", "extra": {"config": paths}})

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        body = mail.get_body(("plain", "html"))
        text = body.get_content() if body is not None else ""
        self.mails.append(Received(str(mail["subject"]), text.replace("\r\n", "\n"), time.monotonic()))
        return "250 OK"

    def post(self, document: dict[str, Any]) -> None:
        self.posts.append(Received(document["title"], document["message"], time.monotonic(), document["type"]))


@contextmanager
def inbox() -> Iterator[Inbox]:
    """Both servers, until the body ends."""
    [smtp_port] = free_ports(1)
    http = ThreadingHTTPServer((LOOPBACK, 0), BaseHTTPRequestHandler)
    received = Inbox(smtp_port, http.server_address[1])

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.post(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - the standard library's name

    http.RequestHandlerClass = Taking
    smtp = Controller(received, hostname=LOOPBACK, port=smtp_port)
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    smtp.start()
    thread.start()
    try:
        yield received
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
        smtp.stop()


@pytest.fixture
def received() -> Iterator[Inbox]:
    with inbox() as servers:
        yield servers
