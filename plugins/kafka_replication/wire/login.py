"""The login of a connection: TLS and SASL, from the settings of a confluent-kafka client.

The kinds of SASL login: what a client says to a broker, and what the broker has to answer.

The same login is used for each connection, and each time that a connection logs in again. ``who`` is the name in
messages: nothing secret. ``remedy`` says what to do if a broker refuses the login. ``exchange`` is the exchange of
messages after the broker has agreed to the mechanism; ``seconds`` is the time for what is fetched from elsewhere, and
it raises ValueError for an answer that is none.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from kafka_replication.model.errors import NotAuthenticated
from kafka_replication.wire import oidc, tls
from kafka_replication.wire.oidc import OF_A_CLOUD, OF_THE_CONNECTION, Source, Tokens, from_callback
from kafka_replication.wire.tls import Unsupported

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


CLIENT = "rdkafka"  # confluent-kafka's own, so that the same quota counts
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *_SCRAM, "OAUTHBEARER")
_ARGUMENT = "sasl.oauthbearer.config"  # what oauth_cb is called with
_KNOWN = (
    tls.SETTINGS
    | oidc.SETTINGS
    | {
        "client.id",
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "oauth_cb",
        _ARGUMENT,
    }
)
# Settings of these groups say how to connect. Others, such as `fetch.wait.max.ms`, concern confluent-kafka alone.
_CONNECTING = (
    "security.",
    "ssl.",
    "enable.ssl.",
    "sasl.",
    "enable.sasl.",
    "https.",
    "broker.address.",
    "client.dns.",
    "client.id",
    "oauth",
)
_OF_TOKENS = "sasl.oauthbearer."
_RECORD = "leave it out, or let the record engine copy, whose client may know it"
_KERBEROS = (
    "set sasl.mechanism to one of {}; only the record engine can log in otherwise, with GSSAPI if its confluent-kafka"
    " is built with Kerberos"
)
_SAYS_WHY = "the broker's log says what is wrong with the token"
TokenCallback = Callable[[Any], Any]


def is_about_connecting(setting: str) -> bool:
    return setting.startswith(_CONNECTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The TLS context, or None without TLS, and the SASL login, or None without one. Brokers count quotas by user and
    ``client``.
    """

    client: str = CLIENT
    tls: ssl.SSLContext | None = None
    login: Login | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any], token_callback: TokenCallback | None = None) -> Self:
        """The security for these settings. ``token_callback`` gives the token of OAUTHBEARER.

        Raises Unsupported, which names a setting that this package does not know, or that is of no use.
        """
        protocol = str(config.get("security.protocol", "plaintext")).upper()
        if protocol.startswith("SASL_") and (mechanism := _mechanism(config)) not in MECHANISMS:
            raise Unsupported(f"the connection logs in with {mechanism}", _KERBEROS.format(", ".join(MECHANISMS)))
        for name in sorted(config):
            if is_about_connecting(name) and name not in _KNOWN:
                raise Unsupported(f"the connection sets {name}", oidc.BY_CALLBACK if _OF_TOKENS in name else _RECORD)
        return cls(
            client=str(config.get("client.id", CLIENT)),
            tls=tls.context(config) if protocol.endswith("SSL") else None,
            login=_login(config, token_callback) if protocol.startswith("SASL_") else None,
        )


def tokens_of(function: TokenCallback, config: Mapping[str, Any]) -> Tokens:
    """The tokens that this function gives, for a connection with these settings."""
    source = _source(config)
    may_be_secret = ("password", "secret", ".pem", _ARGUMENT)
    secrets = [str(value) for name, value in config.items() if name.endswith(may_be_secret)]
    return Tokens(from_callback(function, config.get(_ARGUMENT), secrets, source), source.name)


def _source(config: Mapping[str, Any]) -> Source:
    return OF_THE_CONNECTION if config.get("oauth_cb") else OF_A_CLOUD


def _mechanism(config: Mapping[str, Any]) -> str:
    return str(config.get("sasl.mechanisms", config.get("sasl.mechanism", "GSSAPI"))).upper()


def _login(config: Mapping[str, Any], token_callback: TokenCallback | None) -> Login:
    """The mechanism is one of `MECHANISMS`."""
    mechanism = _mechanism(config)
    user, password = str(config.get("sasl.username", "")), str(config.get("sasl.password", ""))
    if mechanism == "PLAIN":
        return Plain(user, password)
    if mechanism in _SCRAM:
        return Scram(mechanism, user, password)
    # A callback comes before the provider, as in librdkafka.
    if token_callback is not None:
        source = _source(config)
        return Bearer(f"the token of {source.name}", tokens_of(token_callback, config), f"{source.remedy}; {_SAYS_WHY}")
    if str(config.get(oidc.METHOD, "default")).lower() != "oidc":
        raise Unsupported(
            "the connection logs in with OAUTHBEARER, and says not where its token comes from",
            f"set oauth_cb, or {oidc.METHOD} to oidc",
        )
    endpoint = oidc.TokenEndpoint(config)
    remedy = f"correct the sasl.oauthbearer.* settings of the connection; {_SAYS_WHY}"
    return Bearer(endpoint.client, Tokens(endpoint.fetch, endpoint.name), remedy)
