"""The ways to connect to the listeners of `tests.support.tls` that work, and those that are wrong, with what has to be said of them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

from kafka_replication.model.errors import NotAuthenticated, NotResolved, ReplicationError, TlsFailed
from tests.support.tls import TlsCluster

Settings = dict[str, Any]
NOWHERE = "no-such-host.invalid:9092"


def closed() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def with_certificate(tls: TlsCluster, authority: str) -> Settings:
    """A client of the listener for mutual TLS, with a certificate of this authority."""
    file = getattr(tls, authority).issue(f"client-of-{authority}")
    return tls.tls("MUTUAL", ssl_certificate_location=file, ssl_key_location=file)


def at(tls: TlsCluster, listener: str, settings: Settings) -> Settings:
    return {**settings, "bootstrap.servers": tls.address(listener)}


Way = Callable[[TlsCluster], Settings]
RIGHT: Mapping[str, Way] = {
    "TLS": lambda tls: tls.tls(),
    "login": lambda tls: tls.login(),
    "mutual": lambda tls: with_certificate(tls, "authority"),
    "one of two does not listen": lambda tls: {**tls.tls(), "bootstrap.servers": f"{closed()},{tls.address('TLS')}"},
    "one of two is unknown": lambda tls: {**tls.tls(), "bootstrap.servers": f"{NOWHERE},{tls.address('TLS')}"},
    "one of two has expired": lambda tls: {
        **tls.tls(),
        "bootstrap.servers": f"{tls.address('EXPIRED')},{tls.address('TLS')}",
    },
}
# What must stand in the message, and in the remedy.
WRONG: Mapping[str, tuple[Way, type[ReplicationError], str, str]] = {
    "password": (
        lambda tls: tls.login(sasl_password="wrong"),
        NotAuthenticated,
        "the broker refuses the login of 'replicator' by PLAIN",
        "sasl.password",
    ),
    "user": (
        lambda tls: tls.login(sasl_username="nobody", sasl_mechanism="SCRAM-SHA-512"),
        NotAuthenticated,
        "the broker refuses the login of 'nobody' by SCRAM-SHA-512",
        "sasl.username",
    ),
    "mechanism": (
        lambda tls: tls.login(sasl_mechanism="SCRAM-SHA-256"),
        NotAuthenticated,
        "SCRAM-SHA-256 mechanism handshake failed",
        "sasl.mechanism",
    ),
    "login where none is taken": (
        lambda tls: at(tls, "TLS", tls.login()),
        NotAuthenticated,
        "takes no login",
        "security.protocol",
    ),
    "no login over TLS": (
        lambda tls: tls.tls("LOGIN"),
        NotAuthenticated,
        "asks for a login, but the connection has none (it offers PLAIN, SCRAM-SHA-512)",
        "sasl.username",
    ),
    "no login": (
        lambda tls: {"bootstrap.servers": tls.address("OPEN_LOGIN")},
        NotAuthenticated,
        "asks for a login",
        "security.protocol",
    ),
    "authority": (
        lambda tls: tls.tls(ssl_ca_location=tls.stranger.file),
        TlsFailed,
        "does not know the authority",
        "ssl.ca.location",
    ),
    "no authority": (
        lambda tls: {"bootstrap.servers": tls.address("TLS"), "security.protocol": "SSL"},
        TlsFailed,
        "does not know the authority",
        "ssl.ca.location",
    ),
    "expired": (lambda tls: tls.tls("EXPIRED"), TlsFailed, "certificate has expired", "renew"),
    "host name": (lambda tls: tls.tls("ELSEWHERE"), TlsFailed, "for another host name", "advertised.listeners"),
    "no client certificate": (
        lambda tls: tls.tls("MUTUAL"),
        TlsFailed,
        "asks for a client certificate",
        "ssl.certificate.location",
    ),
    "client certificate of a stranger": (
        lambda tls: with_certificate(tls, "stranger"),
        TlsFailed,
        "refuses the client's certificate",
        "trust store",
    ),
    "TLS to plaintext": (
        lambda tls: tls.tls("PLAINTEXT"),
        TlsFailed,
        "speaks no TLS, but the connection wants it",
        "PLAINTEXT",
    ),
    "plaintext to TLS": (
        lambda tls: {"bootstrap.servers": tls.address("TLS")},
        TlsFailed,
        "speaks TLS, but the connection does not",
        "security.protocol to SSL",
    ),
    "plaintext login to TLS": (
        lambda tls: tls.login(security_protocol="SASL_PLAINTEXT"),
        TlsFailed,
        "speaks TLS",
        "SASL_SSL",
    ),
    "no such file": (
        lambda tls: tls.tls(ssl_ca_location="/no/such/ca.pem"),
        TlsFailed,
        "ssl.ca.location names the file /no/such/ca.pem, which does not exist",
        "put the file",
    ),
    "no such host": (
        lambda tls: {**tls.tls(), "bootstrap.servers": NOWHERE},
        NotResolved,
        "host name is not known",
        "bootstrap.servers",
    ),
}
