"""What Kafka clients print: nothing, unless a connection asks for it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException

from kafka_replication.kafka import clients
from kafka_replication.kafka.callbacks import ReportingAdmin
from tests.support.waiting import wait_until

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}  # every client tries, and fails
KINDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "consumer": lambda config: clients.consumer(config, "group"),
    "uncommitted consumer": lambda config: clients.uncommitted_consumer(config, "group"),
    "producer": clients.producer,
    "transactional producer": lambda config: clients.producer(config, **{"transactional.id": "id"}),
    "admin": lambda config: clients._make(ReportingAdmin, config),
}


def fail(client: Any) -> None:
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_prints_nothing(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    fail(KINDS[kind](NOBODY))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "admin"])
@pytest.mark.parametrize("level", [3, "3"])
def test_lines_that_a_connection_asks_for_are_logged(
    kind: str, level: object, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    name = f"of-{uuid.uuid4().hex}"  # threads of earlier tests may log meanwhile
    client = KINDS[kind]({**NOBODY, "log_level": level, "client.id": name})
    fail(client)

    def loggers() -> set[str]:
        """Of the lines about this client."""
        client.poll(0.05)
        return {record.name for record in caplog.records if name in record.getMessage()}

    wait_until(lambda: bool(loggers()))
    assert loggers() == {clients.log.name}
    assert "FAIL|" not in capfd.readouterr().err
