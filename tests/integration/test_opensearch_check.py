"""`check` says what OpenSearch would refuse, before anything is copied, and changes nothing there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_replication.model.trouble import Trouble
from kafka_replication.runs.checking import check
from stack.opensearch_server import OpenSearchServer
from tests.support.http_proxy import Answer, Pass, Proxy, refused, running
from tests.support.opensearch import OpenSearchGround
from tests.support.scenario import Rec, Scenario

LEDGER = "kafka-replication.ledger"


@pytest.fixture
def proxy(scene: Scenario, opensearch: OpenSearchServer) -> Iterator[Proxy]:
    proxy = Proxy(opensearch.url)
    with running(proxy) as url:
        scene.client = {"url": url}
        scene.settings["target"] = {"connection": "target", "type": "opensearch"}
        scene.source.create(scene.topic)
        scene.source.produce(scene.topic, [Rec(b"%d" % n, b'{"n": %d}' % n) for n in range(50)])
        yield proxy


@pytest.fixture
def ground(proxy: Proxy, opensearch: OpenSearchServer) -> OpenSearchGround:
    """Without a ledger, and with ``proxy`` before it."""
    ground = OpenSearchGround.of(opensearch)
    ground.forget_ledger()
    return ground


def said(scene: Scenario, severity: str = "error") -> list[Trouble]:
    return [finding for finding in check(scene.bare_run()).findings if finding.severity == severity]


def denying(method: str, path: str) -> Callable[[str, str], bool]:
    return lambda asked, at: (asked, at.partition("?")[0]) == (method, path)


def denied(path: str, body: bytes, passed: Pass) -> Answer:
    return refused(403, "security_exception")


def test_nothing_is_said_and_nothing_is_created(scene: Scenario, ground: OpenSearchGround) -> None:
    assert said(scene) == said(scene, "warning") == []
    assert not ground.exists(scene.topic) and not ground.exists(LEDGER)
    assert scene.run().outcome == "done"
    documents = ground.ask("GET", f"{scene.topic}/_count")["count"]
    entries = ground.ask("GET", f"{LEDGER}/_count")["count"]
    assert said(scene) == said(scene, "warning") == [] and documents == 50
    ground.ask("POST", "_refresh")
    assert ground.ask("GET", f"{scene.topic}/_count")["count"] == documents
    assert ground.ask("GET", f"{LEDGER}/_count")["count"] == entries


@pytest.mark.parametrize("index", ["topic", "ledger"])
@pytest.mark.parametrize("right", ["create", "write"])
def test_a_missing_right_is_named(
    scene: Scenario, ground: OpenSearchGround, proxy: Proxy, index: str, right: str
) -> None:
    name = scene.topic if index == "topic" else LEDGER
    if right == "write":
        assert scene.run().outcome == "done"
    proxy.wanted, proxy.fault = denying("PUT", f"/{name}" if right == "create" else f"/{name}/_doc/check"), denied
    [finding] = said(scene)
    assert "403 security_exception" in finding.what and name in finding.remedy
    assert ("indices:admin/create" if right == "create" else "indices:data/write") in finding.remedy
    assert "kafka-acls" not in finding.remedy


def test_blocks_of_the_index_and_of_the_ledger_are_named(scene: Scenario, ground: OpenSearchGround) -> None:
    assert scene.run().outcome == "done"
    scene.source.produce(scene.topic, [Rec(b"50", b'{"n": 50}')])
    for name in (scene.topic, LEDGER):
        ground.ask("PUT", f"{name}/_settings", {"index.blocks.read_only_allow_delete": True})
        assert any("read_only_allow_delete" in finding.what and name in finding.what for finding in said(scene))
        ground.ask("PUT", f"{name}/_settings", {"index.blocks.read_only_allow_delete": None})
    assert said(scene) == []


def test_an_index_without_a_replica_is_a_warning(scene: Scenario, ground: OpenSearchGround) -> None:
    assert scene.run().outcome == "done"
    for name in (scene.topic, LEDGER):
        ground.ask("PUT", f"{name}/_settings", {"index.number_of_replicas": 0})
    found = said(scene, "warning")
    assert len(found) == 3 and all("replication factor 1" in finding.what for finding in found), found


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ({"settings": {"index.default_pipeline": "mine"}}, "ingest pipeline"),
        ({"mappings": {"_source": {"enabled": False}}}, "does not store whole documents"),
    ],
)
def test_what_a_template_would_do_to_the_index_is_named(
    scene: Scenario, ground: OpenSearchGround, template: dict[str, Any], named: str
) -> None:
    body = {"index_patterns": [f"{scene.topic}*"], "template": template, "priority": 500}
    ground.ask("PUT", f"_index_template/{scene.name}", body)
    try:
        assert any(named in finding.what for finding in said(scene))
        assert not ground.exists(scene.topic)
    finally:
        ground.ask("DELETE", f"_index_template/{scene.name}")
