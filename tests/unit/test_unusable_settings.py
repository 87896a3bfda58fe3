"""Settings with which the real client cannot be made: which cluster, which setting, why, and what to change. No broker is asked."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import cimpl
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from kafka_replication.kafka import clients, connect_diagnosis
from kafka_replication.model.errors import BadInput, ReplicationError, TlsFailed
from tests.support.tls import Authority

PASSWORD = b"the-true-one"
CERTIFICATE, KEY, KEY_PASSWORD = "ssl.certificate.location", "ssl.key.location", "ssl.key.password"
STORE, STORE_PASSWORD = "ssl.keystore.location", "ssl.keystore.password"


def refused(settings: Mapping[str, Any]) -> ReplicationError:
    """Why no client is made of a source's connection with these settings."""
    given = {"bootstrap.servers": "b1:9094", "security.protocol": "SSL", **settings}
    with pytest.raises(ReplicationError) as caught:
        clients.admin(clients.check_connection("our_kafka", given, "source"))
    error = caught.value
    assert error.what.startswith("source b1:9094 (connection 'our_kafka'): "), error
    assert "wrong-one" not in str(error) and PASSWORD.decode() not in str(error)
    return error


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A client's certificate, its key in three forms, and the key of another certificate."""
    folder = tmp_path_factory.mktemp("keys")
    authority = Authority(folder, "authority")
    own, other = authority.issue("own"), authority.issue("other")
    key = serialization.load_pem_private_key(own.read_bytes(), None)
    certificate = x509.load_pem_x509_certificate(own.read_bytes())
    closed = serialization.BestAvailableEncryption(PASSWORD)
    written = {
        "PKCS#8": key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, closed),
        "OpenSSL": key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, closed
        ),
        "PKCS#12": pkcs12.serialize_key_and_certificates(b"own", key, certificate, None, closed),  # type: ignore[arg-type]
        "certificate": certificate.public_bytes(serialization.Encoding.PEM),
    }
    for name, content in written.items():
        (folder / name).write_bytes(content)
    return {"own": str(own), "other": str(other), **{name: str(folder / name) for name in written}}


@pytest.mark.parametrize("form", ["PKCS#8", "OpenSSL"])
@pytest.mark.parametrize("way", ["file", "text"])
def test_a_key_whose_password_is_wrong_or_missing(files: dict[str, str], form: str, way: str) -> None:
    own, key = files["own"], files[form]
    pair = {CERTIFICATE: own, KEY: key}
    if way == "text":
        pair = {"ssl.certificate.pem": Path(own).read_text(), "ssl.key.pem": Path(key).read_text()}
    name = KEY if way == "file" else "ssl.key.pem"
    missing = refused(pair)
    assert type(missing) is TlsFailed and KEY_PASSWORD in missing.remedy
    assert f"the key in {name}" in missing.what and "has a password, and the connection has none" in missing.what
    wrong = refused({**pair, KEY_PASSWORD: "wrong-one"})
    assert type(wrong) is TlsFailed and KEY_PASSWORD in wrong.remedy
    assert f"{KEY_PASSWORD} is not the password of the key in {name}" in wrong.what
    assert way == "text" or key in wrong.what, "the file is named"


@pytest.mark.parametrize("setting", [KEY, CERTIFICATE, "ssl.ca.location", STORE])
def test_a_key_is_not_shown_where_the_name_of_a_file_belongs(files: dict[str, str], setting: str) -> None:
    text = Path(files["own"]).read_text()
    error = refused({CERTIFICATE: files["own"], KEY: files["own"], setting: text})
    assert type(error) is TlsFailed and f"{setting} has to name a file" in error.what, error
    assert not any(line in str(error) for line in text.splitlines())


def test_the_key_of_another_certificate(files: dict[str, str]) -> None:
    by_file = refused({CERTIFICATE: files["own"], KEY: files["other"]})
    texts = {"ssl.certificate.pem": Path(files["own"]).read_text(), "ssl.key.pem": Path(files["other"]).read_text()}
    for error in (by_file, refused(texts)):
        assert type(error) is TlsFailed and "does not belong to the certificate" in error.what, error
        assert "of one pair" in error.remedy
    assert files["other"] in by_file.what


def test_a_pkcs12_file_whose_password_is_wrong_or_missing(files: dict[str, str]) -> None:
    store = {STORE: files["PKCS#12"]}
    missing = refused(store)
    assert "has a password, and the connection has none" in missing.what and STORE_PASSWORD in missing.remedy
    wrong = refused({**store, STORE_PASSWORD: "wrong-one"})
    assert f"{STORE_PASSWORD} is not the password of the file in {STORE} ({files['PKCS#12']})" in wrong.what
    assert {type(missing), type(wrong)} == {TlsFailed} and STORE_PASSWORD in wrong.remedy


def test_another_file_is_not_called_a_wrong_password(files: dict[str, str], tmp_path: Path) -> None:
    no_key = refused({CERTIFICATE: files["own"], KEY: files["certificate"], KEY_PASSWORD: "any"})
    assert f"{KEY} ({files['certificate']}) cannot be used" in no_key.what and "password" not in no_key.what
    away = refused({CERTIFICATE: files["own"], KEY: str(tmp_path / "away.key")})
    assert f"{KEY} names the file {tmp_path}/away.key, which does not exist" in away.what
    away = refused({STORE: str(tmp_path / "away.p12"), STORE_PASSWORD: "any"})
    assert f"{STORE} names the file {tmp_path}/away.p12, which does not exist" in away.what
    no_store = refused({STORE: files["certificate"], STORE_PASSWORD: "any"})
    assert f"{STORE} ({files['certificate']}) cannot be used" in no_store.what and "password" not in no_store.what


@pytest.mark.parametrize(
    ("settings", "what", "remedy"),
    [
        ({"fetch.mx.bytes": 1}, "fetch.mx.bytes is no setting of the client, did you mean fetch.max.bytes?", "correct"),
        ({"colour": "x"}, "colour is no setting of the client", "remove colour"),
        ({"ssl.truststore.location": "x"}, "Java TrustStores are not supported", "ssl.ca.location"),
        ({"socket.timeout.ms": "soon"}, '"socket.timeout.ms"', "correct socket.timeout.ms"),
        ({"security.protocol": "SSLL"}, '"SSLL"', "correct security.protocol"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
            "this client has no Kerberos (sasl.mechanism is GSSAPI)",
            "set sasl.mechanism",
        ),
        ({"security.protocol": "SASL_SSL"}, "is GSSAPI, as the connection does not set it", "set sasl.mechanism"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "must be set", "correct sasl.username"),
    ],
)
def test_a_setting_that_the_client_does_not_take(settings: dict[str, Any], what: str, remedy: str) -> None:
    error = refused(settings)
    assert type(error) is BadInput, error
    assert what in error.what and ("did you mean" in error.what) == ("did you mean" in what), error
    assert remedy in error.remedy and "the extra of connection 'our_kafka'" in error.remedy, error


def test_the_known_names_are_those_of_this_library(tmp_path: Path) -> None:
    library, c = ctypes.CDLL(cimpl.__file__), ctypes.CDLL(None)
    c.fopen.restype, c.fclose.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    file = c.fopen(bytes(tmp_path / "shown"), b"w")
    library.rd_kafka_conf_properties_show(file)
    c.fclose(file)
    rows = [line.split("|")[0].strip() for line in (tmp_path / "shown").read_text().splitlines() if "|" in line]
    without_dot = {"acks", "debug", "log_level", "partitioner", "retries"}
    assert {name for name in rows if "." in name} | without_dot == connect_diagnosis.NAMES
    assert without_dot <= set(rows)
