"""Callbacks of a client: by dotted path, or for the token of a cloud; what cannot be had is bad input, not a traceback."""

from __future__ import annotations

import base64
import json
import sys
from datetime import UTC, datetime
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kafka_replication.kafka import callbacks, clients
from kafka_replication.kafka.brokers import security_of
from kafka_replication.model.errors import BadInput, Unreachable
from kafka_replication.wire.login import Bearer
from tests import oauth

MSK = "b-1.demo.abcde1.c2.kafka.EU-west-1.amazonaws.com:9098,b-2.demo.abcde1.c2.kafka.eu-west-1.amazonaws.com:9098"
GOOGLE = "bootstrap.orders.europe-west1.managedkafka.dr.cloud.goog:9092"
BEARER = {"sasl.mechanism": "OAUTHBEARER"}


@pytest.fixture
def msk(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = ModuleType("aws_msk_iam_sasl_signer")
    signer.MSKAuthTokenProvider = SimpleNamespace(  # type: ignore[attr-defined]
        generate_auth_token=lambda region: (f"token of {region}", 1_700_000_000_500)
    )
    monkeypatch.setitem(sys.modules, signer.__name__, signer)


class Credentials:
    valid = False
    token = "access"
    service_account_email = "replicator@dr"

    def __init__(self) -> None:
        self.expiry = datetime(2030, 1, 31, 6, tzinfo=UTC).replace(tzinfo=None)

    def refresh(self, _: object) -> None:
        self.valid = True


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Credentials:
    made = Credentials()
    errors = {"DefaultCredentialsError": type("DefaultCredentialsError", (Exception,), {})}
    modules: dict[str, dict[str, Any]] = {
        "google.auth": {"default": lambda scopes: (made, "project")},
        "google.auth.exceptions": errors,
        "google.auth.transport": {},
        "google.auth.transport.requests": {"Request": object},
    }
    import google

    for name, attributes in modules.items():
        module = ModuleType(name)
        module.__dict__.update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(google, "auth", sys.modules["google.auth"], raising=False)
    return made


def test_a_dotted_path_becomes_its_function() -> None:
    config = {"bootstrap.servers": "a:1", "oauth_cb": oauth.PATH, "error_cb": "builtins.print", "client.id": "me"}
    assert callbacks.resolved(config) == {**config, "oauth_cb": oauth.unsecured_token, "error_cb": print}
    assert config["oauth_cb"] == oauth.PATH


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_such_package.token", "No module named 'no_such_package'"),
        ("tests.oauth.absent", "has no attribute 'absent'"),
        ("tests.oauth.NO_FUNCTION", "is not a function"),
        ("token", "cannot be imported"),
        ("", "cannot be imported"),
        (".a.b", "cannot be imported"),
    ],
)
def test_a_path_that_leads_nowhere_is_bad_input(path: str, words: str) -> None:
    with pytest.raises(BadInput, match=words) as refused:
        callbacks.resolved({"oauth_cb": path})
    assert "oauth_cb" in refused.value.what and refused.value.remedy


@pytest.mark.parametrize("mechanism", ["sasl.mechanism", "sasl.mechanisms"])
def test_amazons_brokers_get_a_token_of_their_region(msk: None, mechanism: str) -> None:
    settings = callbacks.resolved({"bootstrap.servers": MSK, mechanism: "OAUTHBEARER"})
    assert settings["oauth_cb"]("") == ("token of eu-west-1", 1_700_000_000.5)


@pytest.mark.parametrize(
    "config",
    [
        {"bootstrap.servers": MSK},
        {"bootstrap.servers": MSK, "sasl.mechanism": "SCRAM-SHA-512"},
        {"bootstrap.servers": "kafka.example.com:9092", **BEARER},
        {"bootstrap.servers": f"{MSK}.example.com", **BEARER},
        {**BEARER},
    ],
)
def test_others_do_not(msk: None, config: dict[str, Any]) -> None:
    servers = config.get("bootstrap.servers", "")
    expected = "oauth_cb" in callbacks.resolved(config)
    assert expected is (servers.startswith("b-1") and servers.endswith("example.com"))  # the first of two still matches


def test_ones_own_callback_is_kept(msk: None) -> None:
    config = {"bootstrap.servers": MSK, **BEARER, "oauth_cb": oauth.PATH}
    assert callbacks.resolved(config)["oauth_cb"] is oauth.unsecured_token


def test_what_heals_a_login_at_a_cloud_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection names no function, so none can be corrected."""

    def no_credentials(region: str) -> tuple[str, int]:
        raise OSError(f"no credentials for {region}")

    signer = ModuleType("aws_msk_iam_sasl_signer")
    signer.__dict__["MSKAuthTokenProvider"] = type("P", (), {"generate_auth_token": staticmethod(no_credentials)})
    monkeypatch.setitem(sys.modules, signer.__name__, signer)
    login = security_of({"bootstrap.servers": MSK, **BEARER, "security.protocol": "SASL_SSL"}).login
    assert isinstance(login, Bearer) and "credentials of the cloud" in login.remedy and "oauth_cb" not in login.remedy
    with pytest.raises(Unreachable, match="signer of the cloud gives no token: OSError: no credentials") as error:
        login.tokens.current(5)
    assert "credentials of the cloud" in error.value.remedy


def test_googles_brokers_get_googles_token(google: Credentials) -> None:
    token, expiry = callbacks.resolved({"bootstrap.servers": GOOGLE})["oauth_cb"]("")
    header, claims, access = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in token.split("."))
    assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert access == b"access" and google.valid
    said = json.loads(claims)
    assert (said["sub"], said["scope"], said["iss"]) == ("replicator@dr", "kafka", "Google")
    assert said["exp"] == expiry == datetime(2030, 1, 31, 6, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("config", "package"),
    [
        ({"bootstrap.servers": MSK, **BEARER}, "aws-msk-iam-sasl-signer-python"),
        ({"bootstrap.servers": GOOGLE}, "google-auth"),
    ],
)
def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], package: str
) -> None:
    for name in ("aws_msk_iam_sasl_signer", "google.auth"):
        monkeypatch.setitem(sys.modules, name, None)
    for make in (clients.producer, clients.admin):
        with pytest.raises(BadInput, match=f"install {package}"):
            make(config)


def test_a_producer_is_made_with_a_connection_that_has_a_commit_callback() -> None:
    clients.producer({"bootstrap.servers": "127.0.0.1:1", "on_commit": "builtins.print"})
