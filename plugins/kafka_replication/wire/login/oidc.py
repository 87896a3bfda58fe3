"""Tokens of an OpenID provider: the client credentials of RFC 6749, section 4.4, as librdkafka asks for them with
``sasl.oauthbearer.method=oidc``.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from kafka_replication.model.errors import NotAuthenticated, ReplicationError, TlsFailed, Unreachable
from kafka_replication.runtime.deadline import NEVER, retry
from kafka_replication.wire.login.tls import trusting
from kafka_replication.wire.login.tokens import Token, without
from kafka_replication.wire.login.unsupported import Unsupported

METHOD, GRANT, METADATA = (
    f"sasl.oauthbearer.{name}" for name in ("method", "grant.type", "metadata.authentication.type")
)
ENDPOINT, SCOPE, EXTENSIONS = (f"sasl.oauthbearer.{name}" for name in ("token.endpoint.url", "scope", "extensions"))
IDS, SECRETS = (
    tuple(f"sasl.oauthbearer.{name}" for name in (f"client.{what}", f"client.credentials.client.{what}"))
    for what in ("id", "secret")
)
SETTINGS = frozenset(
    {
        *(METHOD, GRANT, METADATA, ENDPOINT, SCOPE, EXTENSIONS, *IDS, *SECRETS),
        "sasl.oauthbearer.sub.claim.name",  # names the principal in librdkafka's log, and nothing on the wire
        "https.ca.location",
        "https.ca.pem",
    }
)
ATTEMPTS, ANSWER = 4, 10.0  # seconds that one attempt may take
LARGEST = 1 << 20  # bytes of an answer
BY_CALLBACK = (
    "leave it out and name a function that fetches the token as oauth_cb, see docs/connections.md, or let the record"
    " engine copy, whose client may know it"
)


class TokenEndpoint:
    """Exchanges a connection's client credentials for a token. Shows neither the secret nor a token."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Raises Unsupported."""
        for name, only in ((GRANT, "client_credentials"), (METADATA, "none")):
            if str(config.get(name, only)).lower() != only:
                raise Unsupported(f"the connection sets {name} to {config[name]}", BY_CALLBACK)
        self.client, secret = _setting(config, *IDS), _setting(config, *SECRETS)
        self._credentials = base64.b64encode(f"{self.client}:{secret}".encode()).decode()
        self._secrets = (secret, self._credentials)
        self._url, self._scope = _setting(config, ENDPOINT), str(config.get(SCOPE, ""))
        pairs = [part.strip().partition("=") for part in str(config.get(EXTENSIONS, "")).split(",") if part.strip()]
        self._extensions = tuple((name.strip(), value.strip()) for name, _, value in pairs)
        parts = urlsplit(self._url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise Unsupported(f"{ENDPOINT} of the connection is no address of HTTP, without a user in it", "correct it")
        self.name = f"the token endpoint {parts.scheme}://{parts.netloc}{parts.path}"
        context = trusting(config, "https") if parts.scheme == "https" else None
        handlers = [] if context is None else [urllib.request.HTTPSHandler(context=context)]
        self._opener = urllib.request.build_opener(_NoRedirect, *handlers)

    def fetch(self, seconds: float) -> Token:
        """Ask until there is a token, some times at most. Raises NotAuthenticated, TlsFailed, Unreachable."""
        until = time.monotonic() + seconds

        def once() -> Token:
            said = _document(self._asked(max(0.1, min(ANSWER, until - time.monotonic()))))
            value = str(said.get("access_token") or "")
            try:
                return Token(value=value, expires=_end(value, said), extensions=self._extensions)
            except ValueError as e:  # shows no token
                what = f"the answer of {self.name} is of no use: {e}"
                raise NotAuthenticated(what, "see the provider's log") from None

        return retry(f"asking {self.name}", once, NEVER, ATTEMPTS, patience=seconds)

    def _asked(self, seconds: float) -> bytes:
        # As librdkafka sends it: a scope that needs an encoding has it in the connection.
        body = "grant_type=client_credentials" + (f"&scope={self._scope}" if self._scope else "")
        headers = {
            "Authorization": f"Basic {self._credentials}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        request = urllib.request.Request(self._url, body.encode(), headers, method="POST")
        try:
            with self._opener.open(request, timeout=seconds) as answer:
                return bytes(answer.read(LARGEST))
        except urllib.error.HTTPError as e:
            with e:
                raise self._refused(e.code, e.read(LARGEST)) from None
        except (OSError, http.client.HTTPException, ValueError) as e:  # ValueError: a header or an address that is none
            raise self._failed(e.reason if isinstance(e, urllib.error.URLError) else e) from None

    def _refused(self, status: int, answer: bytes) -> ReplicationError:
        """The error for a status. Of the answer the two fields of RFC 6749, section 5.2, are shown."""
        said = _document(answer)
        why = ": ".join(str(said[name]) for name in ("error", "error_description") if name in said)
        what = f"{self.name} gives no token to {self.client}: status {status}"
        what = f"{what}, {without(why, self._secrets)}" if why else what
        if status == 429 or status >= 500:
            return Unreachable(what, "see the provider's log, then run again")
        if 300 <= status < 400:
            return NotAuthenticated(what, f"set {ENDPOINT} to the address that it redirects to")
        return NotAuthenticated(what, f"correct {IDS[0]}, {SECRETS[0]} and {SCOPE} of the connection")

    def _failed(self, reason: object) -> ReplicationError:
        if isinstance(reason, ssl.SSLError) and not isinstance(reason, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            said = getattr(reason, "verify_message", "") or reason.reason
            return TlsFailed(f"{self.name}: {said}", "set https.ca.location or https.ca.pem to its authority")
        # Only the system's errors show nothing of the request.
        said = str(reason) if isinstance(reason, OSError | str) else type(reason).__name__
        return Unreachable(f"{self.name} does not answer: {said}", f"check the provider, and {ENDPOINT}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nowhere: the secret would go along."""

    def redirect_request(self, *_: object) -> None:
        return None


def _setting(config: Mapping[str, Any], *names: str) -> str:
    value = next((str(config[name]) for name in names if config.get(name)), "")
    if not value:
        raise Unsupported(f"the connection sets {METHOD} to oidc, and no {names[0]}", f"set {names[0]}")
    return value


def _document(answer: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(answer)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _end(token: str, said: Mapping[str, Any]) -> float:
    """The end of the token as it says itself (RFC 7519), or as the answer says. In seconds since the epoch."""
    try:
        payload = token.split(".")[1]
        claims = _document(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, binascii.Error):  # not a JSON Web Token
        claims = {}
    match claims.get("exp"), said.get("expires_in"):
        case (int() | float() as end, _):
            return end
        case (_, int() | float() as seconds):
            return time.time() + seconds
    raise ValueError("it does not say when the token ends")
