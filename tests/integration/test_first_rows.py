"""A replication is seen from its first run on, however that ended."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kafka_replication.model.errors import ReplicationError
from kafka_replication.overview.rows import Row, State, rows
from tests.support.received import Inbox, received
from tests.support.scenario import Scenario, numbered
from tests.support.scenes import clusters, scene
from tests.support.watching import watcher

__all__ = ["clusters", "received", "scene"]


def row_of(scene: Scenario) -> Row:
    [row] = rows(scene.store, datetime.now(UTC))
    return row


def test_a_source_topic_that_does_not_exist_leaves_a_row_that_needs_a_person(scene: Scenario, received: Inbox) -> None:
    assert rows(scene.store, datetime.now(UTC)) == []
    with pytest.raises(ReplicationError):
        scene.run()
    assert (row_of(scene).replication, row_of(scene).state, row_of(scene).source) == (scene.name, State.UNSEEN, "")
    watcher(scene, received).look()
    row = row_of(scene)
    assert (row.state, row.lag.records, row.measured_at) == (State.FAILING, None, None), "it is not in sync"
    assert scene.topic in row.what and row.remedy
    assert (row.source, row.target) == ("source", "target")
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(5))
    scene.run()
    watcher(scene, received).look()
    assert (row_of(scene).state, row_of(scene).lag.records) == (State.IN_SYNC, 0)
