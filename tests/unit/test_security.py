"""Which settings of a client a connection of ours can follow."""

from __future__ import annotations

import re
import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from kafka_replication.kafka.brokers import security_of, unsupported
from kafka_replication.wire.login import Bearer, Plain, Scram, Security
from kafka_replication.wire.tls import Unsupported
from tests import oauth
from tests.support.tls import Authority

LOGIN = {"sasl.username": "u", "sasl.password": "p"}
BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
PASSWORD = "the-true-one"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


def tls(**settings: object) -> ssl.SSLContext:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    made = Security.of({"security.protocol": "SSL", **named}).tls
    assert made is not None
    return made


def test_without_settings_nothing_is_asked_for() -> None:
    assert Security.of({"bootstrap.servers": "a:1", "fetch.wait.max.ms": 5}) == Security()


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_login(name: str) -> None:
    made = Security.of({"security.protocol": "sasl_plaintext", name: "SCRAM-SHA-256", **LOGIN})
    assert made == Security(login=Scram("SCRAM-SHA-256", "u", "p"))
    made = Security.of({"security.protocol": "sasl_plaintext", name: "PLAIN", **LOGIN})
    assert made == Security(login=Plain("u", "p"))


def test_connections_with_the_same_settings_share_a_token() -> None:
    settings = {**BEARER, "oauth_cb": oauth.PATH, "client.id": "tests"}
    first, second = security_of({**settings, "fetch.wait.max.ms": 5}).login, security_of(settings).login
    assert isinstance(first, Bearer) and isinstance(second, Bearer)
    assert first.tokens.current(5) is second.tokens.current(5)
    other = security_of({**settings, "client.id": "other"}).login
    assert isinstance(other, Bearer) and other.tokens is not first.tokens


def test_tls_checks_the_certificate_and_the_name(authority: Authority) -> None:
    made = tls(ssl_ca_location=authority.file)
    assert (made.check_hostname, made.verify_mode) == (True, ssl.CERT_REQUIRED)
    made = tls(ssl_endpoint_identification_algorithm="none")
    assert (made.check_hostname, made.verify_mode) == (False, ssl.CERT_REQUIRED)
    made = tls(enable_ssl_certificate_verification=False)
    assert (made.check_hostname, made.verify_mode) == (False, ssl.CERT_NONE)


def test_authorities_of_a_file_and_of_a_text(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    assert len(tls(ssl_ca_pem=authority.file.read_text()).get_ca_certs()) == 1
    both = tls(ssl_ca_location=authority.file, ssl_ca_pem=other.file.read_text())
    assert len(both.get_ca_certs()) == 2


def test_ciphers() -> None:
    wanted = "ECDHE-RSA-AES256-GCM-SHA384"
    names = {cipher["name"] for cipher in tls(ssl_cipher_suites=wanted).get_ciphers()}
    assert {name for name in names if not name.startswith("TLS_")} == {wanted}


def forms(authority: Authority, folder: Path) -> dict[str, dict[str, object]]:
    """The settings of a client's certificate in each form. Each has a password where the form has one."""
    own = authority.issue("own")
    key = serialization.load_pem_private_key(own.read_bytes(), None)
    certificate = x509.load_pem_x509_certificate(own.read_bytes())
    chain = [x509.load_pem_x509_certificate(authority.file.read_bytes())]
    closed = serialization.BestAvailableEncryption(PASSWORD.encode())
    store, key_file = folder / "own.p12", folder / "own.key"
    store.write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, certificate, chain, closed))  # type: ignore[arg-type]
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, closed).decode()
    key_file.write_text(pem)
    text = certificate.public_bytes(serialization.Encoding.PEM).decode()
    return {
        "texts": {"ssl_certificate_pem": text, "ssl_key_pem": pem, "ssl_key_password": PASSWORD},
        "open text": {"ssl_certificate_pem": own.read_text(), "ssl_key_pem": own.read_text()},
        "text and file": {"ssl_certificate_pem": text, "ssl_key_location": key_file, "ssl_key_password": PASSWORD},
        "file and text": {"ssl_certificate_location": own, "ssl_key_pem": pem, "ssl_key_password": PASSWORD},
        "store": {"ssl_keystore_location": store, "ssl_keystore_password": PASSWORD},
    }


def test_keys_are_in_no_file_but_for_a_moment(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, load = list[tuple[int, str]](), ssl.SSLContext.load_cert_chain

    def loading(context: ssl.SSLContext, *arguments: Any) -> None:
        seen.extend((file.stat().st_mode & 0o777, file.name) for file in temporary.iterdir())
        load(context, *arguments)

    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", loading)
    for form, settings in forms(authority, tmp_path).items():
        seen.clear()
        tls(**settings)
        assert {mode for mode, _ in seen} == {0o600}, form
        assert all(name.startswith("kafka-replication-") for _, name in seen)
        assert list(temporary.iterdir()) == [], form
        with pytest.raises(Unsupported):
            tls(**{**settings, "ssl_keystore_password": "wrong", "ssl_key_password": "wrong", "ssl_key_pem": "x"})
        assert list(temporary.iterdir()) == [], form


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"ssl.engine.location": "x"}, "sets ssl.engine.location; .*let the record engine copy"),
        ({"broker.address.family": "v6"}, "sets broker.address.family; .*let the record engine copy"),
        ({"security.protocol": "SASL_SSL"}, "logs in with GSSAPI; set sasl.mechanism .*built with Kerberos"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI", "sasl.kerberos.keytab": "/k"},
            "logs in with GSSAPI; set sasl.mechanism .*built with Kerberos",
        ),
        (
            {**BEARER, "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.assertion.file": "/a"},
            "sets sasl.oauthbearer.assertion.file; .*as oauth_cb.*or let the record engine copy",
        ),
        (
            {**BEARER, "enable.sasl.oauthbearer.unsecure.jwt": "true"},
            "sets enable.sasl.oauthbearer.unsecure.jwt; .*as oauth_cb.*or let the record engine copy",
        ),
        (BEARER, "OAUTHBEARER, and says not where its token comes from; set oauth_cb, or sasl.oauthbearer.method"),
        ({**BEARER, "sasl.oauthbearer.method": "oidc"}, "no sasl.oauthbearer.client.id"),
        ({**BEARER, "oauth_cb": "nowhere.token"}, "oauth_cb is 'nowhere.token', which cannot be imported"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere/ca.pem"}, "ssl.ca.location .*No such file"),
        ({"security.protocol": "SSL", "ssl.crl.location": "/nowhere/crl.pem"}, "ssl.crl.location .*No such file"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "/nowhere/p12"}, "ssl.keystore.location .*No such file"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "NONE-SUCH"}, "ssl.cipher.suites .*No cipher"),
        ({"security.protocol": "SSL", "ssl.ca.pem": "déjà vu"}, "ssl.ca.pem cannot be used"),
    ],
)
def test_what_cannot_be_followed_is_named(settings: dict[str, Any], reason: str) -> None:
    said = unsupported(settings)
    assert said and re.search(reason, said), said


@pytest.mark.parametrize("setting", ["ssl.ca.location", "ssl.key.location", "ssl.keystore.location"])
@pytest.mark.parametrize("length", [50, 5000])
def test_a_key_where_the_name_of_a_file_belongs_is_not_shown(authority: Authority, setting: str, length: int) -> None:
    key = "-----BEGIN PRIVATE KEY-----" + "x" * length
    own = str(authority.issue("own"))
    settings = {"security.protocol": "SSL", "ssl.certificate.location": own, "ssl.key.location": own, setting: key}
    with pytest.raises(Unsupported, match=setting.partition(".l")[0]) as error:
        Security.of(settings)
    assert "BEGIN" not in f"{error.value} {error.value!r}" and error.value.__suppress_context__
