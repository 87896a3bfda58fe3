"""Logins and TLS of OpenSearch: a front that has both, before a real node, which has neither."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.model.errors import BadInput, NotAuthenticated, TlsFailed
from stack.opensearch_server import OpenSearchServer
from tests.support.http_proxy import Proxy, running
from tests.support.opensearch import OpenSearchGround
from tests.support.scenario import Scenario, numbered
from tests.support.tls import Authority

LOGIN = {"login": "réplicator", "password": "päß:wörd €"}
API_KEY = b64encode(b"id:key").decode()
BASIC = f"Basic {b64encode('réplicator:päß:wörd €'.encode()).decode()}"


@dataclass(frozen=True)
class Front:
    url: str
    authority: Authority
    mutual: str  # the address of one that asks for a client's certificate, and for no login

    def settings(self, **more: Any) -> dict[str, Any]:
        return {"url": self.url, "ca_certs": str(self.authority.file), **more}


@pytest.fixture
def front(opensearch: OpenSearchServer, scene: Scenario, tmp_path: Path) -> Iterator[Front]:
    authority = Authority(tmp_path / "pem", "authority")
    tls, mutual = (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for _ in range(2))
    certificate = authority.issue("front")
    for context in (tls, mutual):
        context.load_cert_chain(certificate)
    mutual.verify_mode = ssl.CERT_REQUIRED
    mutual.load_verify_locations(authority.file)
    proxy = Proxy(opensearch.url, logins=frozenset({BASIC, f"ApiKey {API_KEY}"}))
    scene.settings["target"] = {"connection": "target", "type": "opensearch", "documents": {"value": "base64"}}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    with running(proxy, tls) as url, running(Proxy(opensearch.url), mutual) as of_certificates:
        yield Front(url, authority, of_certificates)


@pytest.mark.parametrize("kind", ["login", "api key", "certificate"])
def test_a_login_copies_and_verifies(scene: Scenario, front: Front, opensearch: OpenSearchServer, kind: str) -> None:
    own = str(front.authority.issue("client"))
    scene.client = {
        "login": front.settings(**LOGIN),
        "api key": front.settings(api_key=API_KEY),
        "certificate": front.settings(url=front.mutual, client_cert=own, client_key=own),
    }[kind]
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert len(OpenSearchGround.of(opensearch).visible(scene.topic)) == 10
    assert "key" not in report.table() and "wörd" not in report.table()


@pytest.mark.parametrize(
    "wrong",
    [{}, {**LOGIN, "password": "another"}, {"api_key": b64encode(b"id:another").decode()}],
    ids=["nobody", "password", "key"],
)
def test_a_wrong_login_is_named(scene: Scenario, front: Front, wrong: dict[str, Any]) -> None:
    scene.client = front.settings(**wrong)
    with pytest.raises(NotAuthenticated, match="401") as raised:
        scene.run()
    assert "login" in raised.value.remedy and "another" not in str(raised.value)


def test_a_certificate_of_somebody_else_is_named(scene: Scenario, front: Front, tmp_path: Path) -> None:
    scene.client = {"url": front.url, **LOGIN}  # trusts the authorities of the system alone
    with pytest.raises(TlsFailed, match="certificate"):
        scene.run()
    scene.client = front.settings(**LOGIN, ca_certs=str(Authority(tmp_path / "pem", "stranger").file))
    with pytest.raises(TlsFailed, match="certificate"):
        scene.run()
    scene.client = {"url": front.mutual, "ca_certs": str(front.authority.file)}  # without a certificate of its own
    with pytest.raises(TlsFailed, match="certificate"):
        scene.run()


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_without_certificates_is_named(
    scene: Scenario, front: Front, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "wrong.pem"
    if content:
        file.write_text(content)
    scene.client = front.settings(**LOGIN, ca_certs=str(file))
    with pytest.raises(BadInput, match=str(file)):
        scene.run()
