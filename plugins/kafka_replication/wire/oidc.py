"""Tokens of an OpenID provider: the client credentials of RFC 6749, section 4.4, as librdkafka asks for them with
``sasl.oauthbearer.method=oidc``.

The token of an OAUTHBEARER login: one for all connections of this process with the same settings.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import logging
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TimedOut
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from kafka_replication.model.errors import NotAuthenticated, ReplicationError, Stalled, TlsFailed, Unreachable
from kafka_replication.runtime import background
from kafka_replication.runtime.deadline import NEVER, retry
from kafka_replication.wire.tls import Unsupported, trusting

log = logging.getLogger(__name__)
FRESH = 0.8  # of a token's life; then it is fetched anew, as by librdkafka
_TOKEN = re.compile(r"[\x21-\x7e]+")  # RFC 7628, section 3.1: anything else could end the message early
_NAME, _VALUE = re.compile(r"[A-Za-z]+"), re.compile(r"[\x20-\x7e\t\r\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token, and what goes to the broker beside it (KIP-342). ``expires`` is in seconds since the epoch."""

    value: str = field(repr=False)
    expires: float
    extensions: Sequence[tuple[str, str]] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.value):
            raise ValueError("it has characters that no token has" if self.value else "it has no token")
        if self.expires <= time.time():
            raise ValueError("it has expired already")
        for name, value in self.extensions:
            if not _NAME.fullmatch(name) or name == "auth" or not _VALUE.fullmatch(value):
                raise ValueError(f"{name!r} cannot be an extension, or not with this value")


@dataclass(frozen=True, slots=True)
class Source:
    """The name of a function that gives tokens, in messages, and the remedy if it gives none, or the wrong ones."""

    name: str
    remedy: str


OF_THE_CONNECTION = Source("oauth_cb", "correct oauth_cb of the connection, see docs/connections.md")
OF_A_CLOUD = Source(
    "the signer of the cloud",
    "give every machine with a client credentials of the cloud that may connect, see docs/connections.md",
)
Fetch = Callable[[float], Token]  # takes the seconds that it may take


class Tokens:
    """Fetches tokens, and keeps the newest one until most of its life is over.

    While one thread fetches, the others wait for the same token. After a failure the old token is used until it ends.
    """

    def __init__(self, fetch: Fetch, source: str, now: Callable[[], float] = time.time) -> None:
        """``source`` is where tokens come from, in messages."""
        self._fetch, self._source, self._now = fetch, source, now
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._fresh_until = 0.0
        self._fetching: Future[Token] | None = None

    def current(self, seconds: float) -> Token:
        """Raises NotAuthenticated, TlsFailed, Unreachable, Stalled after ``seconds`` without a token."""
        with self._lock:
            if self._token is not None and self._now() < self._fresh_until:
                return self._token
            if self._fetching is None:
                self._fetching = background.begin(lambda: self._fetched(seconds), "token")
            fetching = self._fetching
        try:
            return fetching.result(seconds)
        except (Unreachable, TimedOut) as e:
            with self._lock:
                if self._fetching is fetching:  # it hangs: the next caller tries anew
                    self._fetching = None
                old = self._token if self._token is not None and self._now() < self._token.expires else None
            late = isinstance(e, TimedOut)
            error = Stalled(f"{self._source} gave no token within {seconds:.0f} s", "run again") if late else e
            if old is None:
                raise error from None
            log.warning("%s; the token before is used until it ends", error)
            return old

    def forget(self, token: Token) -> None:
        """Note that a broker refused this token: the next login fetches another one."""
        with self._lock:
            if self._token is token:
                self._token = None

    def _fetched(self, seconds: float) -> Token:
        try:
            token, now = self._fetch(seconds), self._now()
            with self._lock:
                self._token, self._fresh_until = token, now + FRESH * (token.expires - now)
            return token
        finally:
            with self._lock:
                self._fetching = None


def from_callback(
    function: Callable[[Any], Any], argument: object, secrets: Sequence[str], source: Source = OF_THE_CONNECTION
) -> Fetch:
    """Tokens of a function, which returns what confluent-kafka expects: the token, when it expires, and possibly a
    principal and extensions. Its error is shown without the connection's secrets.
    """

    def fetch(_: float) -> Token:
        try:
            returned = function(argument)
        except Exception as e:  # noqa: BLE001  # it is a user's
            said = without(f"{type(e).__name__}: {e}", secrets)
            raise Unreachable(f"{source.name} gives no token: {said}", source.remedy) from None
        extensions: object = None
        try:
            match returned:
                case (str(value), int() | float() as expires):
                    pass
                case (str(value), int() | float() as expires, _):
                    pass
                case (str(value), int() | float() as expires, _, extensions):
                    pass
                case _:
                    raise ValueError("it is not a token with the seconds of its end")
            pairs = extensions.items() if isinstance(extensions, Mapping) else ()
            shown = tuple((str(name), str(text)) for name, text in pairs)
            return Token(value=value, expires=expires, extensions=shown)
        except ValueError as e:  # shows nothing of what was returned
            raise NotAuthenticated(f"what {source.name} returned is of no use: {e}", source.remedy) from None

    return fetch


def without(text: str, secrets: Sequence[str]) -> str:
    """The text with stars in place of the secrets."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


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
