"""An OpenID provider in small: signed tokens, the keys to check them, and the endpoint that gives them for credentials."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from stack.ports import LOOPBACK

CLIENT, SECRET, AUDIENCE = "replicator", "the-client's-secret", "kafka"


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _number(value: int) -> str:
    return _b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Issuer:
    """Signs tokens (RFC 7519) with a key of its own."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)

    def token(self, seconds: float = 600, **claims: Any) -> str:
        now = time.time()
        said = {"sub": CLIENT, "aud": AUDIENCE, "iss": "tests", "scope": "read write", "iat": int(now), **claims}
        parts = {"alg": "RS256", "kid": "1", "typ": "JWT"}, {"exp": int(now + seconds), **said}
        signed = ".".join(_b64(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{_b64(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def write_keys(self, file: Path) -> None:
        """What a broker needs to check the tokens (RFC 7517)."""
        public = self._key.public_key().public_numbers()
        numbers = {"n": _number(public.n), "e": _number(public.e)}
        file.write_text(json.dumps({"keys": [{"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", **numbers}]}))


@dataclass
class Endpoint:
    """``address`` gives ``answer`` to whoever has the credentials. What is in ``failures`` comes first, one by one: a
    status with a document.
    """

    address: str
    answer: Any  # a function that returns a document
    failures: list[tuple[int, Any]] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)  # of the requests

    def settings(self, **more: str) -> dict[str, Any]:
        """Client settings."""
        named = {"method": "oidc", "client.id": CLIENT, "client.secret": SECRET, "token.endpoint.url": self.address}
        bearer = {f"sasl.oauthbearer.{name}": value for name, value in {**named, **more}.items()}
        return {"sasl.mechanism": "OAUTHBEARER", **bearer}

    def _answer(self, authorization: str, body: str) -> tuple[int, Any]:
        self.bodies.append(body)
        if self.failures:
            return self.failures.pop(0)
        if authorization != "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode():
            return 401, {"error": "invalid_client", "error_description": f"not {authorization}"}
        return 200, self.answer()


@contextmanager
def token_endpoint(answer: Any, certificate: Path | None = None) -> Iterator[Endpoint]:
    """An endpoint on this machine, with TLS if there is a ``certificate`` with its key."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, document = endpoint._answer(self.headers["Authorization"], body)
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if 300 <= status < 400:
                self.send_header("Location", endpoint.address)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        if certificate is not None:
            context = SSLContext(PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https" if certificate else "http"
        endpoint = Endpoint(f"{scheme}://{LOOPBACK}:{server.server_port}/oauth/token", answer)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield endpoint
        finally:
            server.shutdown()
            thread.join(10)
