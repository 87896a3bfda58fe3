"""What an earlier build of 0.1.0 left behind, a ledger and a store, is read and continued by a run: nothing is copied twice.

``tests/golden/upgrade`` was dumped after real runs of one of the first builds: 60 and 50 records in two partitions, copied in
chunks of 20 and verified; then 40 and 30 more, planned by a run ``old-run`` that copied the first partition and died. Its
receipts and its store were then edited by hand to the formats that the ledger and the store have had since: those of the first
builds are refused by name. `test_half_done` continues a dump that nobody edited."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.model.keys import PartitionKey, dump
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runs import runner, steps
from kafka_replication.runs.run import Request
from kafka_replication.store import open_store
from tests.support.jobs import InProcess
from tests.support.scenario import Rec, Scenario, numbered, send
from tests.support.waiting import wait_until

GOLDEN = Path(__file__).parents[1] / "golden" / "upgrade"
RECORDS = ([*numbered(60), *numbered(40, 60)], [*numbered(50, 1000), *numbered(30, 1050)])


@pytest.fixture
def upgraded(scene: Scenario) -> Scenario:
    """Both clusters, the ledger and the store as that build left them; only names and ids are this test's own."""
    for side in (scene.source, scene.target):
        side.create(scene.topic, 2)
    for partition, records in enumerate(RECORDS):
        scene.source.produce(scene.topic, records, partition)
    scene.bare_run().clusters.ledger.ensure(scene.replication())
    snapshot = scene.bare_run().snapshot(scene.bare_run().view())
    names = {
        "{name}": scene.name,
        "{topic}": scene.topic,
        "{source_cluster}": snapshot.source_cluster,
        "{source_topic_id}": snapshot.source[scene.topic].topic_id,
        "{target_topic_id}": snapshot.target[scene.topic].topic_id,
    }
    replay_ledger(scene, [json.loads(line) for line in filled("ledger.jsonl", names).splitlines()])
    scene.store.close()
    path = scene.folder / "old.db"
    with sqlite3.connect(path) as db:
        db.executescript(filled("store.sql", names))
    scene.store = open_store(f"sqlite:///{path}")
    return scene


def filled(file: str, names: dict[str, str]) -> str:
    text = (GOLDEN / file).read_text()
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    return text


def replay_ledger(scene: Scenario, entries: list[dict[str, Any]]) -> None:
    """Each chunk in a transaction of its own, as it wrote them: records and markers get the offsets they had."""
    ends: dict[int, int] = {}
    for entry in entries:
        value, [_, _, _, partition, *_] = entry["value"], entry["key"]
        if value["type"] == "receipt":
            from_, until = value["range"]
            position = next(
                other
                for other in entries
                if other["value"]["type"] == "position"
                and other["key"][3] == partition
                and other["value"]["next_offset"] == until
            )
            [segment] = value["placement"]["segments"]
            assert segment["first"] == ends.get(partition, 0)
            write(scene, [position, entry], RECORDS[partition][from_:until], partition)
            ends[partition] = segment["last"] + 2  # the transaction's marker follows its records
        elif value["type"] == "verified" or not value["coverage"]:
            write(scene, [entry])


def write(scene: Scenario, entries: list[dict[str, Any]], records: list[Rec] = [], partition: int = 0) -> None:  # noqa: B006
    producer = scene.target.transactional()
    producer.begin_transaction()
    send(producer, scene.topic, records, partition)
    for entry in entries:
        _, name, topic, number, target, *_ = entry["key"]
        at = PartitionKey(name, TopicPartition(topic, number), target).ledger_partition
        producer.produce(entry["topic"], key=dump(entry["key"]), value=dump(entry["value"]), partition=at)
    producer.commit_transaction(30)
    wait_until(lambda: scene.is_settled(0, 1))


def test_a_run_goes_on_where_the_old_version_ended(upgraded: Scenario) -> None:
    report = upgraded.run()
    assert report.outcome == "done", report.table()
    assert sum(line.copied for line in report.ranges) == 30
    assert sum(line.copied_before for line in report.ranges) == 40
    assert [upgraded.watermark(partition) for partition in (0, 1)] == [100, 80]
    upgraded.assert_copied(0, 1)
    upgraded.idle_run()


def test_a_run_that_the_old_version_planned_is_continued(upgraded: Scenario) -> None:
    run, launcher = upgraded.bare_run("old-run"), InProcess()
    made = steps.prepare(run, Request())
    assert sorted((planned.key.source.partition, str(planned.copy)) for planned in made.to_copy) == [
        (0, "[60, 100)"),
        (1, "[50, 80)"),
    ]
    report = runner.carry_out(run, made, lambda: launcher)
    assert report.outcome == "done", report.table()
    # Both partitions were this run's: what it copied before it died is its own.
    assert sorted(line.copied for line in report.ranges) == [30, 40]
    assert [upgraded.watermark(partition) for partition in (0, 1)] == [100, 80]
    upgraded.assert_copied(0, 1)
