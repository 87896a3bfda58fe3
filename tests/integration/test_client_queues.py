"""A connection may ask for statistics: no client that nobody polls gathers them."""

from __future__ import annotations

import pytest

from kafka_replication.kafka import clients
from kafka_replication.kafka.consumer_pool import borrowed
from tests.support.scenario import Scenario

OFTEN = {"statistics.interval.ms": 5}


@pytest.mark.parametrize("more", [{}, {"stats_cb": lambda _: None}], ids=["unheard", "heard"])
def test_an_admin_client_gathers_no_statistics(scene: Scenario, more: clients.ClientConfig) -> None:
    admin = clients.admin({"bootstrap.servers": scene.target.bootstrap, **OFTEN, **more})
    for _ in range(100):
        admin.list_topics(timeout=30)
    assert len(admin) == 0  # type: ignore[arg-type]  # what waits to be polled


def test_a_producer_without_a_callback_gathers_no_statistics(scene: Scenario) -> None:
    producer = clients.producer({"bootstrap.servers": scene.target.bootstrap, **OFTEN})
    for _ in range(100):
        producer.list_topics(timeout=30)
    assert len(producer) == 0


def test_an_idle_consumer_gathers_no_statistics(scene: Scenario) -> None:
    heard: list[str] = []
    config = {"bootstrap.servers": scene.target.bootstrap, **OFTEN, "stats_cb": heard.append}
    with borrowed(config, "kafka-replication/queues") as consumer:
        for _ in range(100):
            consumer.list_topics(timeout=30)
    with borrowed(config, "kafka-replication/queues") as again:
        assert again is consumer
        again.poll(0.1)
    assert heard == []
