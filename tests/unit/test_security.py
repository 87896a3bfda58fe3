"""Which settings of a client a connection of ours can follow."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.wire.security import Security
from tests.support.tls import Authority

LOGIN = {"sasl.username": "u", "sasl.password": "p"}


def test_without_settings_nothing_is_asked_for() -> None:
    assert Security.of({"bootstrap.servers": "a:1", "fetch.wait.max.ms": 5}) == Security()


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_login(name: str) -> None:
    made = Security.of({"security.protocol": "sasl_plaintext", name: "SCRAM-SHA-256", **LOGIN})
    assert (made.tls, made.mechanism, made.user, made.password) == (None, "SCRAM-SHA-256", "u", "p")


def test_tls_checks_the_certificate_and_the_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    made = Security.of({"security.protocol": "SSL", "ssl.ca.location": str(authority.file)})
    assert made.tls is not None
    assert (made.tls.check_hostname, made.tls.verify_mode) == (True, ssl.CERT_REQUIRED)
    made = Security.of({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"})
    assert made.tls is not None
    assert (made.tls.check_hostname, made.tls.verify_mode) == (False, ssl.CERT_REQUIRED)
    made = Security.of({"security.protocol": "SSL", "enable.ssl.certificate.verification": False})
    assert made.tls is not None
    assert (made.tls.check_hostname, made.tls.verify_mode) == (False, ssl.CERT_NONE)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"ssl.cipher.suites": "x"}, "sets ssl.cipher.suites"),
        ({"ssl.keystore.location": "x"}, "sets ssl.keystore.location"),
        ({"broker.address.family": "v6"}, "sets broker.address.family"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "logs in with OAUTHBEARER"),
        ({"security.protocol": "SASL_SSL"}, "logs in with GSSAPI"),
    ],
)
def test_what_cannot_be_followed_is_named(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Security.of(settings)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(OSError, match="No such file"):
        Security.of({"security.protocol": "SSL", "ssl.ca.location": "/nowhere/ca.pem"})
