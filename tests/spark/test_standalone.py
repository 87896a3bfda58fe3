"""The same run in local mode and on a cluster: the same data, and the same report."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.connections.port import SparkConnection
from kafka_replication.spark.launcher import Launcher
from kafka_replication.spark.submit import PY_FILES, terminal_launcher
from tests.support.checker import read
from tests.support.clusters import Brokers
from tests.support.scenario import Cluster, Scenario, numbered

PARTITIONS = 3
# What differs between two runs of any kind: the run, how long it took, and the names of the two replications.
OF_THE_RUN = ("run_id", "replication", "seconds", "topic", "target_topic")


def same(value: Any) -> Any:
    """A report without what differs from run to run."""
    if isinstance(value, dict):
        return {key: same(each) for key, each in value.items() if key not in OF_THE_RUN}
    return [same(each) for each in value] if isinstance(value, list) else value


def replicated(source: Brokers, target: Brokers, folder: Path, launcher: Launcher) -> dict[str, Any]:
    """One run, and an idle one after it; the first one's report."""
    folder.mkdir()
    scene = Scenario(Cluster(source.bootstrap), Cluster(target.bootstrap), folder)
    try:
        scene.source.create(scene.topic, PARTITIONS)
        for partition in range(PARTITIONS):
            scene.source.produce(scene.topic, numbered(1_000 - partition), partition)
        report = scene.run(launcher, copy={"chunk_records": 200})
        assert report.outcome == "done", report.table()
        scene.assert_copied(*range(PARTITIONS))
        scene.idle_run()
        document: dict[str, Any] = report.as_json()
        return document
    finally:
        scene.store.close()


def test_a_cluster_gets_a_transform_as_a_file(
    source_cluster: Brokers,
    target_cluster: Brokers,
    spark_cluster: SparkConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The module is nowhere on the workers' path: ``spark.submit.pyFiles`` brings it. Without it, the run names it."""
    name = f"shipped_{uuid.uuid4().hex[:8]}"
    file = tmp_path / "elsewhere" / f"{name}.py"
    file.parent.mkdir()
    file.write_text("def marked(record):\n    return record.replace(headers=(('marked', b'1'),))\n")
    monkeypatch.syspath_prepend(file.parent)
    scene = Scenario(Cluster(source_cluster.bootstrap), Cluster(target_cluster.bootstrap), tmp_path)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    try:
        lacking = scene.run(terminal_launcher(spark_cluster, {}), transform=f"{name}:marked")
        assert lacking.outcome == "failed" and f"cannot import {name}" in lacking.table()
        launcher = terminal_launcher(spark_cluster, {PY_FILES: str(file)})
        report = scene.run(launcher, transform=f"{name}:marked")
        assert report.outcome == "done", report.table()
        found = {record.headers for _, record in read(scene.target.bootstrap, scene.topic, 0)}
        assert found == {(("marked", b"1"),)}
    finally:
        scene.store.close()


def test_local_mode_and_a_cluster_do_the_same(
    source_cluster: Brokers, target_cluster: Brokers, spark_cluster: SparkConnection, tmp_path: Path
) -> None:
    local = terminal_launcher(SparkConnection("local[2,4]", {}), {})
    here = replicated(source_cluster, target_cluster, tmp_path / "local", local)
    cluster = terminal_launcher(spark_cluster, {})
    there = replicated(source_cluster, target_cluster, tmp_path / "cluster", cluster)
    assert same(there) == same(here)
    assert sum(each["copied"] for each in there["ranges"]) == 3_000 - 3
