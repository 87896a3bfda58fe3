"""The kinds of SASL login: what a client says to a broker, and what the broker has to answer.

The same login is used for each connection, and each time that a connection logs in again. ``who`` is the name in
messages: nothing secret. ``remedy`` says what to do if a broker refuses the login. ``exchange`` is the exchange of
messages after the broker has agreed to the mechanism; ``seconds`` is the time for what is fetched from elsewhere, and
it raises ValueError for an answer that is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_replication.model.errors import NotAuthenticated
from kafka_replication.wire.login.tokens import Tokens

Say = Callable[[str], str]  # sends a message and returns the broker's answer; raises NotAuthenticated if it refuses


_OF_A_USER = "correct sasl.username and sasl.password of the connection"


@dataclass(frozen=True, slots=True)
class Plain:
    """PLAIN (RFC 4616)."""

    who: str
    password: str = field(repr=False)
    mechanism = "PLAIN"
    remedy = _OF_A_USER

    def exchange(self, say: Say, seconds: float) -> None:  # noqa: ARG002  # nothing is fetched
        say(f"\0{self.who}\0{self.password}")


@dataclass(frozen=True, slots=True)
class Scram:
    """SCRAM (RFC 5802) with SHA-256 or SHA-512."""

    mechanism: str
    who: str
    password: str = field(repr=False)
    remedy = _OF_A_USER

    def exchange(self, say: Say, seconds: float) -> None:  # noqa: ARG002  # nothing is fetched
        from scramp import ScramClient, ScramException

        client = ScramClient([self.mechanism], self.who, self.password)
        try:
            client.set_server_first(say(client.get_client_first()))
            client.set_server_final(say(client.get_client_final()))
        except (ScramException, LookupError) as e:  # for a message that is none
            raise ValueError(str(e)) from e


@dataclass(frozen=True, slots=True)
class Bearer:
    """OAUTHBEARER (RFC 7628)."""

    who: str
    tokens: Tokens = field(repr=False)
    remedy: str
    mechanism = "OAUTHBEARER"

    def exchange(self, say: Say, seconds: float) -> None:
        token = self.tokens.current(seconds)
        pairs = [f"auth=Bearer {token.value}", *(f"{name}={value}" for name, value in token.extensions)]
        try:
            if refusal := say("n,,\1" + "".join(f"{pair}\1" for pair in pairs) + "\1"):
                say("\1")  # the broker then answers with its error
                raise ValueError(refusal)
        except (NotAuthenticated, ValueError):
            self.tokens.forget(token)
            raise


Login = Plain | Scram | Bearer
