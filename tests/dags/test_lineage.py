"""The topics of a run as OpenLineage's provider gets them, and that nothing asks for it where it is not installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import pytest

from kafka_replication.copying.engine import CopyResult
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.orchestration.observability import Dataset, Lineage, between, namespace
from tests.dags.test_report_task import Run
from tests.support.jobs import InProcess
from tests.support.scenario import Scenario, numbered
from tests.support.scenes import clusters, scene

__all__ = ["clusters", "scene"]
HAS_PROVIDER = importlib.util.find_spec("openlineage") is not None


@pytest.mark.parametrize(
    ("kind", "connection", "named"),
    [
        ("kafka", {"bootstrap.servers": "one.example.org:9093,two.example.org:9093"}, "kafka://one.example.org:9093"),
        ("kafka", {"bootstrap.servers": " SASL_SSL://one.example.org:9093"}, "kafka://one.example.org:9093"),
        ("kafka", {"bootstrap.servers": "one.example.org"}, "kafka://one.example.org:9092"),
        ("kafka", {"bootstrap.servers": "[::1]:9093"}, "kafka://[::1]:9093"),
        ("kafka", {"bootstrap.servers": "[::1]"}, "kafka://[::1]:9092"),
        ("opensearch", {"url": "https://search.example.org:9200/path"}, "opensearch://search.example.org:9200"),
    ],
)
def test_a_cluster_is_named_as_openlineage_names_it(kind: str, connection: dict[str, Any], named: str) -> None:
    assert namespace(kind, connection) == named


def key(topic: str, partition: int, target: str) -> PartitionKey:
    return PartitionKey("orders-dr", TopicPartition(topic, partition), target)


def test_the_partitions_of_a_topic_are_one_dataset_and_what_was_only_read_back_is_one_too() -> None:
    copied = [
        CopyResult(key=key("orders", partition, "dr.orders"), range=OffsetRange(0, 9), copied=9, bytes=90)
        for partition in (0, 1)
    ]
    assert between("kafka://a:1", "kafka://b:2", copied, [copied[0].key, key("audit", 0, "dr.audit")]) == Lineage(
        (Dataset("kafka://a:1", "audit"), Dataset("kafka://a:1", "orders")),
        {Dataset("kafka://b:2", "dr.audit"): (0, 0), Dataset("kafka://b:2", "dr.orders"): (18, 180)},
    )


@pytest.mark.skipif(not HAS_PROVIDER, reason="OpenLineage's provider is not installed")
def test_the_provider_gets_the_topics_of_a_task_that_copied(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.openlineage.extractors.base import DefaultExtractor

    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    run = Run(scene, monkeypatch, InProcess())
    run.execute("plan")
    task: Any = run.task("replicate")
    before = DefaultExtractor(task).extract()
    assert before is not None and (before.inputs, before.outputs) == ([], [])
    run.execute("replicate")
    found = DefaultExtractor(task).extract_on_complete(None)
    assert found is not None
    [read], [written] = found.inputs, found.outputs
    source, target = scene.source.bootstrap.split(",")[0], scene.target.bootstrap.split(",")[0]
    assert (read.namespace, read.name) == (f"kafka://{source}", scene.topic)
    assert (written.namespace, written.name) == (f"kafka://{target}", scene.topic)
    statistics = written.outputFacets["outputStatistics"]
    assert statistics.rowCount == 20 and statistics.size > 0


@pytest.mark.slow
def test_nothing_of_openlineage_is_imported_by_itself() -> None:
    code = "import sys, kafka_replication.orchestration.operators as s; print('openlineage' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HAS_PROVIDER or done.stdout.split()[-1] == "False"
