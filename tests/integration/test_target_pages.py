"""The first replication on the page of each kind of target, pasted. Only names and addresses are those of this test."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from kafka_replication.config import Replication
from kafka_replication.connections import EnvironmentConnections, variable
from tests.support import whole_runs
from tests.support.hbase import HBaseGround
from tests.support.jobs import InProcess
from tests.support.opensearch import OpenSearchGround
from tests.support.scenario import ALL, Rec, Scenario

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [("opensearch", "opensearch", 3), ("hbase", "hbase", 3), ("latest", "opensearch", 2)]


def connection(kind: str) -> tuple[str, dict[str, object]]:
    """The variable that the page of a kind exports, and its content."""
    text = (DOCS / f"{kind}.md").read_text()
    found = re.search(r"^export (AIRFLOW_CONN_\w+)='(.*)'$", text, re.MULTILINE)
    assert found is not None
    return found[1], json.loads(found[2])


@pytest.mark.parametrize(("page", "kind", "many"), PAGES)
def test_the_first_replication_of_a_page_runs(
    page: str, kind: str, many: int, scene: Scenario, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``many`` documents or rows of the ``kind`` are there then."""
    server = request.getfixturevalue(kind)
    ground = OpenSearchGround.of(server) if kind == "opensearch" else HBaseGround.of(server)
    block = re.search(r"^```yaml\n(.*?)^```$", (DOCS / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None
    document = yaml.safe_load(block[1])
    document |= {"name": scene.name, "topics": {"include": [scene.topic]}}
    name, pasted = connection(kind)
    assert name == variable(document["target"]["connection"])
    at = urlsplit(str(ground.connection["url"]))
    here = {"host": at.hostname, "port": at.port, "schema": None, "login": None, "password": None}
    monkeypatch.setenv(name, json.dumps({**pasted, **here}))
    source = {"conn_type": "kafka", "extra": {"bootstrap.servers": scene.source.bootstrap}}
    monkeypatch.setenv(variable(document["source"]["connection"]), json.dumps(source))
    scene.source.create(scene.topic)
    keys = (b"a", b"b", b"a")
    scene.source.produce(scene.topic, [Rec(key, b'{"n": %d}' % n) for n, key in enumerate(keys)])
    launcher = InProcess()
    replication = Replication.model_validate(document)
    report = whole_runs.run(replication, EnvironmentConnections(), scene.store, launcher, ALL)
    assert report.outcome == "done", report.table()
    assert len(ground.visible(scene.topic)) == many
