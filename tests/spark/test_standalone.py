"""The same run in this process and on a cluster: the same data, and the same report."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.connections import SparkConnection
from kafka_replication.documents import as_json
from kafka_replication.spark.launcher import Launcher, terminal_launcher
from kafka_replication.spark.submit import PY_FILES
from tests.support.clusters import Brokers
from tests.support.jobs import InProcess
from tests.support.scenario import Cluster, Scenario, numbered

PARTITIONS = 3
# What differs between two runs of any kind: the run, how long it took, and the names of the two replications.
OF_THE_RUN = ("run_id", "replication", "seconds", "topic", "target_topic")


def same(value: Any) -> Any:
    """A report without what differs from run to run."""
    if isinstance(value, dict):
        return {key: same(each) for key, each in value.items() if key not in OF_THE_RUN}
    return [same(each) for each in value] if isinstance(value, list) else value


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module with a transform that is nowhere on the workers' path; ``spark.submit.pyFiles`` can bring it."""
    file = tmp_path / "elsewhere" / f"shipped_{uuid.uuid4().hex[:8]}.py"
    file.parent.mkdir()
    file.write_text("def same(record):\n    return record\n")
    monkeypatch.syspath_prepend(file.parent)
    return file


def replicated(source: Brokers, target: Brokers, folder: Path, launcher: Launcher, transform: str) -> dict[str, Any]:
    """One run, and an idle one after it; the first one's report."""
    folder.mkdir()
    scene = Scenario(Cluster(source.bootstrap), Cluster(target.bootstrap), folder)
    try:
        scene.source.create(scene.topic, PARTITIONS)
        for partition in range(PARTITIONS):
            scene.source.produce(scene.topic, numbered(1_000 - partition), partition)
        report = scene.run(launcher, copy={"chunk_records": 200}, transform=transform)
        assert report.outcome == "done", report.table()
        scene.assert_copied(*range(PARTITIONS))
        scene.idle_run(transform=transform)
        return dict(as_json(report))
    finally:
        scene.store.close()


@pytest.mark.slow
def test_this_process_and_a_cluster_do_the_same(
    source_cluster: Brokers, target_cluster: Brokers, spark_cluster: SparkConnection, tmp_path: Path, shipped: Path
) -> None:
    settings, transform = {PY_FILES: str(shipped)}, f"{shipped.stem}:same"
    here = replicated(source_cluster, target_cluster, tmp_path / "here", InProcess(), transform)
    cluster = terminal_launcher(lambda: spark_cluster, settings)
    there = replicated(source_cluster, target_cluster, tmp_path / "cluster", cluster, transform)
    assert same(there) == same(here)
    assert sum(each["copied"] for each in there["ranges"]) == 3_000 - 3


@pytest.mark.slow
def test_a_cluster_that_lacks_a_transform_names_it(
    source_cluster: Brokers, target_cluster: Brokers, spark_cluster: SparkConnection, tmp_path: Path, shipped: Path
) -> None:
    scene = Scenario(Cluster(source_cluster.bootstrap), Cluster(target_cluster.bootstrap), tmp_path)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    try:
        lacking = scene.run(terminal_launcher(lambda: spark_cluster, {}), transform=f"{shipped.stem}:same")
        assert lacking.outcome == "failed" and f"cannot import {shipped.stem}" in lacking.table()
    finally:
        scene.store.close()
