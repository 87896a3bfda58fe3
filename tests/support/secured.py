"""A cluster that asks for SCRAM logins over TLS and grants nothing by itself: rights are ACLs that its administrator
sets.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from stack.artifacts import CURRENT, Release
from stack.kafka_cluster import KafkaCluster
from stack.ports import LOOPBACK, free_ports
from tests.support.clusters import started
from tests.support.tls import Authority
from tests.support.waiting import wait_until

ADMIN, MECHANISM = "admin", "SCRAM-SHA-512"
LONGEST_TRANSACTION = 60  # seconds
USERS = "listener.name.users"
LOGIN = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One right of one user, as ``kafka-acls.sh --add`` grants it; or one that it denies."""

    operation: str  # as in Kafka: READ, DESCRIBE_CONFIGS, ...
    kind: str  # TOPIC, GROUP, TRANSACTIONAL_ID, BROKER (which is the cluster)
    name: str
    prefixed: bool = False
    deny: bool = False

    def __str__(self) -> str:
        denied = "no " if self.deny else ""
        return f"{denied}{self.operation} on {self.kind} {self.name}{'*' if self.prefixed else ''}"

    def _terms(self, user: str) -> list[Any]:
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        operation, effect = AclOperation[self.operation], AclPermissionType["DENY" if self.deny else "ALLOW"]
        return [ResourceType[self.kind], self.name, pattern, f"User:{user}", "*", operation, effect]

    def binding(self, user: str) -> AclBinding:
        return AclBinding(*self._terms(user))

    def filter(self, user: str) -> AclBindingFilter:
        return AclBindingFilter(*self._terms(user))


@dataclass
class SecuredCluster:
    """One broker, its administrator, and the users that it makes. ``address`` is the users' listener."""

    cluster: KafkaCluster
    address: str
    authority: Authority
    password: str

    def as_admin(self) -> dict[str, Any]:
        """The client settings of the super user, who logs in without TLS."""
        return {
            "bootstrap.servers": self.cluster.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN,
            "sasl.password": self.password,
        }

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({**self.as_admin(), "log_level": 0})

    def add_user(self, name: str) -> dict[str, Any]:
        """The client settings of a new user without any right."""
        password = secrets.token_hex(8)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(name, info, password.encode())
        _done(self.admin.alter_user_scram_credentials([change]).values())
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.file),
            "sasl.mechanism": MECHANISM,
            "sasl.username": name,
            "sasl.password": password,
        }

    def grant(self, user: str, *acls: Acl) -> None:
        """Returns when the broker decides by it, which is later than the controller's answer."""
        _done(self.admin.create_acls([acl.binding(user) for acl in acls]).values())
        wait_until(lambda: all(self._has(user, acl) for acl in acls))

    def withdraw(self, user: str, *acls: Acl) -> None:
        _done(self.admin.delete_acls([acl.filter(user) for acl in acls]).values())
        wait_until(lambda: not any(self._has(user, acl) for acl in acls))

    def _has(self, user: str, acl: Acl) -> bool:
        return bool(self.admin.describe_acls(acl.filter(user)).result(30))


def _done(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.result(30)


def on_topic(name: str, *operations: str) -> list[Acl]:
    return [Acl(operation, "TOPIC", name) for operation in operations]


def _keystore(pem: Path, password: str) -> Path:
    """The same key and certificate as PKCS#12: brokers before Kafka 3 take no PEM file without a password."""
    key = serialization.load_pem_private_key(pem.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(pem.read_bytes())
    file, encrypted = pem.with_suffix(".p12"), serialization.BestAvailableEncryption(password.encode())
    file.write_bytes(pkcs12.serialize_key_and_certificates(b"broker", key, certificate, None, encrypted))
    return file


# With KRaft, with ZooKeeper.
AUTHORIZERS = ("org.apache.kafka.metadata.authorizer.StandardAuthorizer", "kafka.security.authorizer.AclAuthorizer")


def _extra(password: str, authority: Authority, release: Release) -> dict[str, str]:
    plain = (
        f'{LOGIN}.plain.PlainLoginModule required username="{ADMIN}" password="{password}" user_{ADMIN}="{password}";'
    )
    return {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",  # named, so that its protocol is looked up in the map
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": plain,
        f"{USERS}.{MECHANISM.lower()}.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
        f"{USERS}.sasl.enabled.mechanisms": MECHANISM,
        f"{USERS}.ssl.keystore.type": "PKCS12",
        f"{USERS}.ssl.keystore.location": str(_keystore(authority.issue("broker"), password)),
        f"{USERS}.ssl.keystore.password": password,
        f"{USERS}.ssl.key.password": password,
        "authorizer.class.name": AUTHORIZERS[release.zookeeper],
        "transaction.max.timeout.ms": str(LONGEST_TRANSACTION * 1000),
        "super.users": f"User:{ADMIN};User:ANONYMOUS",  # anonymous: the controllers' own listener
    }


@contextmanager
def secured_cluster(folder: Path, release: Release = CURRENT) -> Iterator[SecuredCluster]:
    """A new one, killed in the end."""
    name, password, (port,) = f"secured-{uuid.uuid4().hex[:6]}", secrets.token_hex(8), free_ports(1)
    authority = Authority(folder / f"{name}-pem", "authority")
    extra, listeners = _extra(password, authority, release), {"USERS": (port, "SASL_SSL")}
    cluster = KafkaCluster(name, folder, extra=extra, listeners=listeners, release=release)
    with started(cluster):
        secured = SecuredCluster(cluster, f"{LOOPBACK}:{port}", authority, password)
        wait_until(lambda: bool(secured.admin.list_topics(timeout=30).brokers))  # with ZooKeeper that is told later
        yield secured
