"""A target that is away for a while is waited out within the run's time; a run whose time is used up ends and says so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafka_replication.model.errors import OutOfTime
from stack.kafka_cluster import Broker, KafkaCluster
from tests.integration.scenario import Scenario, numbered, wait_until

RECORDS = 4_000
SHORT: dict[str, Any] = {
    "copy": {"chunk_records": 500, "transaction_timeout": 6, "chunk_seconds": 3, "stall_timeout": 3}
}


@contextmanager
def when_logged(**acts: Callable[[], None]) -> Iterator[list[str]]:
    """Act once at the first line of the product's log that holds these words (underscores for blanks); all lines until the end."""
    lines: list[str] = []

    class Acting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())
            for words in [each for each in acts if each.replace("_", " ") in lines[-1]]:
                acts.pop(words)()

    handler, logger = Acting(logging.INFO), logging.getLogger("kafka_replication")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def kill(scene: Scenario, broker: Broker) -> None:
    """Kill it, but not between a commit and its markers: a lone broker, which takes a partition without a leader for a deleted one while it
    starts, would never write them (Kafka 4.3.1), and that transaction would hang for ever."""
    wait_until(scene.is_settled)
    broker.kill()


def test_a_broker_that_comes_back_is_waited_for(own_scene: Scenario, own_target: KafkaCluster) -> None:
    scene, broker = own_scene, own_target.broker(0)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(RECORDS))
    scene.settings |= SHORT

    with when_logged(of_span=lambda: kill(scene, broker), a_session_ended=own_target.start) as lines:
        report = scene.run(timeouts={"request": 10})
    assert any("a session ended" in line for line in lines), "the broker's death was not noticed"
    assert report.outcome == "done", report.table()
    assert report.ranges[0].copied + report.ranges[0].copied_before == RECORDS
    scene.assert_copied()
    assert scene.watermark() == RECORDS


def test_a_run_whose_time_is_used_up_ends_by_name(own_scene: Scenario, own_target: KafkaCluster) -> None:
    scene, broker = own_scene, own_target.broker(0)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(RECORDS))
    scene.settings |= SHORT
    try:
        with when_logged(of_span=lambda: kill(scene, broker)), pytest.raises(OutOfTime) as over:
            scene.run(timeouts={"request": 5, "run": 15})
    finally:
        own_target.start()
    assert "the run's time (timeouts.run) is used up; the last error was: " in over.value.what
    assert "run again" in over.value.remedy
    assert scene.store.lease_of(scene.name) is None  # given back
    assert scene.run().outcome == "done"
    scene.assert_copied()
