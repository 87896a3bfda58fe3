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

import pytest
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
from tests.support.token_endpoint import AUDIENCE, Issuer

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

    def revoked(self, *certificates: Path) -> Path:
        """A file with the list of those that are no longer valid."""
        made = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        made = made.last_update(datetime.now(UTC) - A_DAY).next_update(datetime.now(UTC) + A_DAY)
        for file in certificates:
            number = x509.load_pem_x509_certificate(file.read_bytes()).serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(datetime.now(UTC))
            made = made.add_revoked_certificate(revoked.build())
        file = self._folder / f"revoked-{len(certificates)}.pem"
        file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsCluster:
    """One broker. Every client setting below works, but for what it overrides; see `listeners`."""

    cluster: KafkaCluster
    ports: dict[str, int]
    authority: Authority
    stranger: Authority  # whom the broker does not know
    certificate: Path  # of the broker
    issuer: Issuer  # of the tokens that the broker takes
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

    def bearer(self, **more: Any) -> dict[str, Any]:
        """Settings of a client that logs in over TLS with a token, but for where the token comes from."""
        return {
            **self.tls("BEARER"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            **_dotted(more),
        }

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


SESSION = 2.0  # seconds
LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",  # wants a client's certificate of the authority
    "EXPIRED": "SSL",  # its certificate expired an hour ago
    "ELSEWHERE": "SSL",  # its certificate is for another host
    "LOGIN": "SASL_SSL",  # PLAIN and SCRAM-SHA-512
    "BEARER": "SASL_SSL",  # OAUTHBEARER with tokens of the issuer, and SCRAM-SHA-512; asks again after SESSION
    "OPEN_LOGIN": "SASL_PLAINTEXT",  # asks again every second: a changed password is noticed in mid-connection
}


@contextmanager
def tls_cluster(folder: Path) -> Iterator[TlsCluster]:
    """A new one, killed in the end. Its plaintext listener is ``cluster.bootstrap``."""
    name, password = f"tls-{uuid.uuid4().hex[:6]}", secrets.token_hex(8)
    authority, stranger = Authority(folder / f"{name}-pem", "authority"), Authority(folder / f"{name}-pem", "stranger")
    issuer = Issuer()
    issuer.write_keys(keys := folder / f"{name}-keys.json")
    ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
    listeners = {listener: (ports[listener], protocol) for listener, protocol in LISTENERS.items()}
    good = authority.issue("broker")
    settings = _settings(authority, good, password, keys.as_uri())
    cluster = KafkaCluster(name, folder, listeners=listeners, extra=settings)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JDK_JAVA_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}")
        with started(cluster):
            yield TlsCluster(
                cluster=cluster,
                ports={**ports, "PLAINTEXT": cluster.broker(0).port},
                authority=authority,
                stranger=stranger,
                certificate=good,
                issuer=issuer,
                password=password,
            )


def _settings(authority: Authority, good: Path, password: str, keys: str) -> dict[str, str]:
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
    bearer = "listener.name.bearer"
    return lines | {
        f"{bearer}.sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-512",
        f"{bearer}.oauthbearer.sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
        f"{bearer}.oauthbearer.sasl.server.callback.handler.class": (
            f"{_LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        f"{bearer}.sasl.oauthbearer.jwks.endpoint.url": keys,
        f"{bearer}.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{bearer}.connections.max.reauth.ms": str(int(SESSION * 1000)),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.open_login.connections.max.reauth.ms": "1000",
    }
