"""What the pages for operators give to paste: connections of Spark, and parts of a replication's file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from kafka_replication.config import Replication
from kafka_replication.connections import EnvironmentConnections

DOCS = Path(__file__).parents[2] / "docs"
FILE = {
    "name": "orders-dr",
    "source": {"connection": "kafka_source"},
    "target": {"connection": "kafka_target"},
    "topics": {"include": ["orders"]},
}
PAGES = ("alerts", "deployment", "monitoring", "spark")


def blocks(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```$", (DOCS / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)


def test_every_connection_of_spark_leads_to_its_master(monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.findall(r"AIRFLOW_CONN_SPARK_DEFAULT='(.*?)'", (DOCS / "spark.md").read_text(), re.DOTALL)
    masters = []
    for text in found:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", text)
        masters.append(EnvironmentConnections().spark("spark_default").master)
    assert masters == [
        "local[*,4]",
        "spark://spark-master:7077",
        "yarn",
        "k8s://https://kubernetes.default.svc:443",
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_part_of_a_file_is_accepted(page: str) -> None:
    parts = [yaml.safe_load(block) for block in blocks(page)]
    assert parts
    for part in parts:
        Replication.model_validate({**FILE, **part})
