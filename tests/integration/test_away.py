"""A target that is away for a while is waited out within the run's time; a run whose time is used up ends and says so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from kafka_replication.model.errors import OutOfTime, Unreachable
from kafka_replication.runs import steps
from kafka_replication.runs.run import Request
from kafka_replication.runtime.events import Event
from stack.kafka_cluster import Broker, KafkaCluster
from tests.support.leases import holder_of
from tests.support.scenario import Scenario, numbered
from tests.support.waiting import wait_until

RECORDS = 4_000
SHORT: dict[str, Any] = {
    "copy": {"chunk_records": 500, "transaction_timeout": 6, "stall_timeout": 3},
}


@contextmanager
def when_logged(acts: Mapping[Event, Callable[[], None]]) -> Iterator[set[Event]]:
    """Act at the first log line of an event; all events until the end."""
    seen = set[Event]()

    class Acting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            event = getattr(record, "event", None)
            if event is not None and event not in seen:
                seen.add(event)
                acts.get(event, lambda: None)()

    handler, logger = Acting(logging.INFO), logging.getLogger("kafka_replication")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield seen
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def kill(scene: Scenario, broker: Broker) -> None:
    """Kill it, but not between a commit and its markers: a lone broker, which takes a partition without a leader for a deleted one while it
    starts, would never write them (Kafka 4.3.1), and that transaction would hang for ever."""
    wait_until(scene.is_settled)
    broker.kill()


@pytest.mark.slow
def test_a_broker_that_comes_back_is_waited_for(own_scene: Scenario, own_cluster: KafkaCluster) -> None:
    scene, broker = own_scene, own_cluster.broker(0)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(RECORDS))
    scene.settings |= SHORT

    acts = {Event.CHUNK_COMMITTED: lambda: kill(scene, broker), Event.COPY_SESSION_ENDED: own_cluster.start}
    with when_logged(acts) as seen:
        report = scene.run(timeouts={"request": 10})
    assert Event.COPY_SESSION_ENDED in seen, "the broker's death was not noticed"
    assert report.outcome == "done", report.table()
    assert report.ranges[0].copied + report.ranges[0].copied_before == RECORDS
    scene.assert_copied()
    assert scene.watermark() == RECORDS


@pytest.mark.slow
def test_a_run_whose_time_is_used_up_ends_by_name(own_scene: Scenario, own_cluster: KafkaCluster) -> None:
    scene, broker = own_scene, own_cluster.broker(0)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(RECORDS))
    scene.settings |= SHORT
    try:
        with when_logged({Event.CHUNK_COMMITTED: lambda: kill(scene, broker)}), pytest.raises(OutOfTime) as over:
            scene.run(timeouts={"request": 5, "run": 15})
    finally:
        own_cluster.start()
    assert over.value.id == "out-of-time" and "timeouts.run" in over.value.what
    assert "run again" in over.value.remedy
    assert holder_of(scene.store, scene.name) is None  # given back
    assert scene.run().outcome == "done"
    scene.assert_copied()


@pytest.mark.slow
def test_the_steps_after_a_failed_copy_take_minutes_at_most(own_scene: Scenario, own_cluster: KafkaCluster) -> None:
    """The target died and stays away: the ledger is tried for ten times `timeouts.request`, not 500 times."""
    scene, broker = own_scene, own_cluster.broker(0)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(RECORDS))
    scene.settings |= {**SHORT, "timeouts": {"request": 2}}
    run = scene.bare_run("after")
    plan = steps.prepare(run, Request())  # of which nothing is copied
    try:
        kill(scene, broker)
        with pytest.raises(Unreachable):
            steps.report(run, plan, steps.NotDone())
    finally:
        own_cluster.start()
