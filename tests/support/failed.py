"""Records that were set aside, as tests look at them and decide about them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from kafka_replication.documents import as_json
from kafka_replication.ledger.entries import FailedRecord
from kafka_replication.model.choices import Action
from kafka_replication.runs.failed import Asked, handle
from kafka_replication.runs.retry_discard import Decision
from kafka_replication.runs.run import open_run
from kafka_replication.store import open_store
from tests.support.checker import Record, read
from tests.support.scenario import Rec, Scenario, numbered

QUARANTINE = {"policy": "quarantine"}
_asked = itertools.count(1)


@pytest.fixture
def with_failures(scene: Scenario) -> Scenario:
    return set_aside(scene)


def set_aside(scene: Scenario) -> Scenario:
    """A compacted target that has quarantined four records, and goes on behind them."""
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"cleanup.policy": "compact"})
    records = numbered(60)
    for place in (7, 8, 30, 59):
        records[place] = Rec(None, b"%d" % place, (("h", None),))
    scene.source.produce(scene.topic, records)
    scene.settings |= {"failures": QUARANTINE}
    report = scene.run()
    assert report.outcome == "done", report.table()
    return scene


def quarantined(scene: Scenario, **settings: Any) -> list[Record]:
    topic = scene.replication(**settings).quarantine_topic
    partitions = range(scene.target.partitions(topic))
    return [record for number in partitions for _, record in read(scene.target.bootstrap, topic, number)]


def failures(scene: Scenario, partition: int = 0) -> list[FailedRecord]:
    """As the receipts name them."""
    key = scene.key(partition)
    receipts = scene.bare_run().clusters.ledger.receipts({key: None}).all(key)
    return [failed for receipt in receipts for failed in receipt.failures]


def ask(scene: Scenario, action: Action, **asked: Any) -> list[dict[str, Any]]:
    run = open_run(scene.replication(), scene.connections, scene.store, f"{action}-{next(_asked)}")
    document = as_json(handle(run, action, Asked(**asked), Decision(by="ann", reason="why")).document)
    found: list[dict[str, Any]] = document["records"]
    return found


def assert_each_once(scene: Scenario, missing: Sequence[int] = (), partition: int = 0) -> None:
    """Whatever the order."""
    there = read(scene.source.bootstrap, scene.topic, partition)
    source = [record for offset, record in there if offset not in missing]
    target = [record for _, record in read(scene.target.bootstrap, scene.topic, partition)]
    assert sorted(map(repr, target)) == sorted(map(repr, source))


def lose_receipts(scene: Scenario) -> None:
    """As if they had expired."""
    run, key = scene.bare_run(), scene.key()
    with closing(run.clusters.target.session(key)) as session:
        session.fence()
        session.transaction.begin()
        for receipt in run.clusters.ledger.receipts({key: None}).all(key):
            session.ledger.delete(session.transaction, key, receipt)
        session.transaction.commit()


def lose_store(scene: Scenario) -> None:
    """An empty one takes its place."""
    scene.folder = scene.folder / "another"
    scene.folder.mkdir()
    scene.store = open_store(scene.store_url)
