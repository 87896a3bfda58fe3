"""Certificates, and one broker with a listener for each way to meet TLS or a login."""

from __future__ import annotations

import ipaddress
import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stack.kafka_cluster import KafkaCluster
from stack.ports import LOOPBACK, free_ports
from tests.support.clusters import started

USER = "replicator"
_LOGIN = "org.apache.kafka.common.security"
A_DAY = timedelta(days=1)


class Authority:
    """A private certificate authority; its files lie in ``folder``."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self._certificate = self._sign(
            self._name, self._key, x509.BasicConstraints(ca=True, path_length=None), datetime.now(UTC) + A_DAY
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, host: str = LOOPBACK, until: datetime | None = None) -> Path:
        """A PEM file with a new key, and its certificate for ``host`` (an IP address or a name)."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(
            _named(name), key, x509.SubjectAlternativeName([_host(host)]), until or datetime.now(UTC) + A_DAY
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = self._folder / f"{name}.pem"
        file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        return file

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType, until: datetime
    ) -> x509.Certificate:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(until, datetime.now(UTC)) - A_DAY)
            .not_valid_after(until)
            .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
            .sign(self._key, hashes.SHA256())
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@dataclass(frozen=True, slots=True)
class TlsCluster:
    """One broker. Every client setting below works, but for what it overrides; see `listeners`."""

    cluster: KafkaCluster
    ports: dict[str, int]
    authority: Authority
    stranger: Authority  # whom the broker does not know
    password: str

    def address(self, listener: str) -> str:
        return f"{LOOPBACK}:{self.ports[listener]}"

    def tls(self, listener: str = "TLS", **more: Any) -> dict[str, Any]:
        """Settings of a client that trusts the broker's authority."""
        return {
            "bootstrap.servers": self.address(listener),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.file),
            **_dotted(more),
        }

    def scram(self, user: str, password: str) -> dict[str, Any]:
        """Settings of a new user, or of one with a new password, once the broker takes them. It asks again every second."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(30)
        settings = {
            "bootstrap.servers": self.address("OPEN_LOGIN"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
        }
        AdminClient({**settings, "log_level": 0}).list_topics(timeout=30)  # it logs in again until it may
        return settings

    def login(self, **more: Any) -> dict[str, Any]:
        """Settings of a client that logs in over TLS."""
        return {
            **self.tls("LOGIN"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": self.password,
            **_dotted(more),
        }


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    """``security_protocol`` as the client's ``security.protocol``."""
    return {name.replace("_", "."): str(value) for name, value in settings.items()}


LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",  # wants a client's certificate of the authority
    "EXPIRED": "SSL",  # its certificate expired an hour ago
    "ELSEWHERE": "SSL",  # its certificate is for another host
    "LOGIN": "SASL_SSL",  # PLAIN and SCRAM-SHA-512
    "OPEN_LOGIN": "SASL_PLAINTEXT",  # asks again every second: a changed password is noticed in mid-connection
}


@contextmanager
def tls_cluster(folder: Path) -> Iterator[TlsCluster]:
    """A new one, killed in the end. Its plaintext listener is ``cluster.bootstrap``."""
    name, password = f"tls-{uuid.uuid4().hex[:6]}", secrets.token_hex(8)
    authority, stranger = Authority(folder / f"{name}-pem", "authority"), Authority(folder / f"{name}-pem", "stranger")
    ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
    listeners = {listener: (ports[listener], protocol) for listener, protocol in LISTENERS.items()}
    cluster = KafkaCluster(name, folder, listeners=listeners, extra=_settings(authority, password))
    with started(cluster):
        yield TlsCluster(cluster, {**ports, "PLAINTEXT": cluster.broker(0).port}, authority, stranger, password)


def _settings(authority: Authority, password: str) -> dict[str, str]:
    good = authority.issue("broker")
    own = {
        "EXPIRED": authority.issue("expired", until=datetime.now(UTC) - timedelta(hours=1)),
        "ELSEWHERE": authority.issue("elsewhere", host="kafka.elsewhere.example"),
    }
    lines = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}
    for listener, protocol in LISTENERS.items():
        prefix = f"listener.name.{listener.lower()}"
        if protocol.endswith("SSL"):
            lines |= {
                f"{prefix}.ssl.keystore.type": "PEM",
                f"{prefix}.ssl.keystore.location": str(own.get(listener, good)),
                f"{prefix}.ssl.truststore.type": "PEM",
                f"{prefix}.ssl.truststore.location": str(authority.file),
            }
        if protocol.startswith("SASL"):
            lines |= {
                f"{prefix}.plain.sasl.jaas.config": (
                    f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{password}";'
                ),
                f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
            }
    return lines | {
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.open_login.connections.max.reauth.ms": "1000",
    }
