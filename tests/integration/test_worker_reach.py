"""A Spark worker that cannot reach a cluster which the submitting process reaches says so soon."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.kafka import reachability
from kafka_replication.model.errors import Unreachable
from kafka_replication.model.offsets import Coverage, TopicPartition
from kafka_replication.runtime.deadline import NEVER
from kafka_replication.spark import worker
from kafka_replication.spark.jobs import Job
from tests.support.jobs import copies
from tests.support.scenario import Scenario, numbered

TOPIC = TopicPartition("orders", 0)


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections and never answers, as a firewall that drops what comes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its three attempts a worker makes one."""
    monkeypatch.setattr(reachability, "ATTEMPTS", 1)


def hurried(scene: Scenario) -> Job:
    """Its workers give a cluster one second for its first answer."""
    job = scene.copy_job()
    timeouts = job.replication.timeouts.model_copy(update={"request": 1})
    return replace(job, replication=job.replication.model_copy(update={"timeouts": timeouts}))


@pytest.mark.parametrize("side", [pytest.param("source", marks=pytest.mark.slow), "target"])
def test_a_cluster_that_never_answered_a_worker_is_named(scene: Scenario, silent: str, side: str) -> None:
    """With the default 500 attempts; each of them is a producer session that waits for its time-outs."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    job = hurried(scene)
    assert job.attempts == 500
    clusters: dict[str, Any] = {"source": job.source, "target": job.target, side: {"bootstrap.servers": silent}}
    done = worker.copy(worker.Tools(replace(job, **clusters)), copies(job)[0])
    assert done.retriable and done.copied == 0 and done.sessions == 0
    for part in (f"{scene.topic}-0", f"the {side} cluster", socket.gethostname(), silent):
        assert part in str(done.error), done.error
    assert "docs/deployment.md" in done.remedy


@pytest.mark.usefixtures("once")
def test_reading_back_names_it_too(scene: Scenario, silent: str) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    job = hurried(scene)
    away = replace(job, target={"bootstrap.servers": silent})
    done = worker.read_back(worker.Tools(away), job.tasks[0].read_back, job.attempts)
    assert done.retriable and done.verified == Coverage() and silent in str(done.error)


def test_an_answer_that_is_an_error_is_an_answer(scene: Scenario) -> None:
    """A topic that is gone is for the copier to refuse."""
    key = scene.key(topic="never-created")
    reachability._answered.discard(scene.source.bootstrap)
    reachability.check("source", {"bootstrap.servers": scene.source.bootstrap}, key.source, 10.0, NEVER)
    assert scene.source.bootstrap in reachability._answered


@pytest.mark.usefixtures("once")
def test_a_cluster_is_asked_once_in_a_process(silent: str) -> None:
    """What happens later is an outage, which the copier's own attempts outlast."""
    config = {"bootstrap.servers": silent}
    reachability._answered.add(silent)
    try:
        reachability.check("source", config, TOPIC, 1.0, NEVER)
    finally:
        reachability._answered.discard(silent)
    with pytest.raises(Unreachable):
        reachability.check("source", config, TOPIC, 0.5, NEVER)
