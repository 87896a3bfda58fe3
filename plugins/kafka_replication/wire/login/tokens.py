"""The token of an OAUTHBEARER login: one for all connections of this process with the same settings."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TimedOut
from dataclasses import dataclass, field
from typing import Any

from kafka_replication.model.errors import NotAuthenticated, Stalled, Unreachable
from kafka_replication.runtime import background

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
