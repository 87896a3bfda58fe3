"""A ledger and a store that runs on real brokers left half done are continued.

``tests/golden/half_done`` was dumped by an early build, then brought by hand to the formats of 0.1.0: four partitions
from a start by time on, chunks of 20 records. In order: a first run, with a record that was too large and went to
quarantine; two backfills before the start; a gap, approved by a person; a run that died when its second partition was
verified in the ledger and not in the store; one that died when a partition was copied and not read back; and the run
``old-run``, which planned all partitions and died within the next one. ``logs.json`` says where each record lay:
first target offset, first source offset, number of records.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_replication.model.choices import Action
from kafka_replication.model.offsets import PartitionKey, TopicPartition, dump
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import runner, steps
from kafka_replication.runs.run import Request
from kafka_replication.store import open_store
from tests.support.audits import audit
from tests.support.checker import read
from tests.support.failed import ask
from tests.support.jobs import InProcess
from tests.support.scenario import Rec, Scenario, send
from tests.support.waiting import wait_until

GOLDEN = Path(__file__).parents[1] / "golden" / "half_done"
LOGS: dict[str, Any] = json.loads((GOLDEN / "logs.json").read_text())
ENDS = {int(number): end for number, end in LOGS["source_ends"].items()}
OLD_NAME = "orders-before5"  # the partitions of the ledger depend on it
START, TOO_LARGE, GAP_UNTIL = 1_700_000_000_000, (2, 25), 75


def record(partition: int, offset: int) -> Rec:
    """As it was sent to the source then."""
    if (partition, offset) == TOO_LARGE:
        return Rec(b"2-25", random.Random(25).randbytes(4000), (), START + 25)
    value = (b"%d-" % offset).ljust(40, b"x")
    return Rec(b"%d-%d" % (partition, offset), value, (("h", b"1"),), START + offset)


def copied_before(partition: int) -> list[int]:
    """The source offsets of what was on the target, in its order."""
    return [first + number for _, first, count in LOGS["target"][str(partition)] for number in range(count)]


@dataclass
class HalfDone:
    """Puts the earlier build's records, ledger and store where a scenario finds them."""

    scene: Scenario
    names: dict[str, str] = field(default_factory=dict)
    # The old offset of each receipt of a key, and its new one, in ascending order.
    receipts: dict[PartitionKey, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    @cached_property
    def producer(self) -> Producer:
        return self.scene.target.transactional()

    def prepare(self) -> None:
        scene, topic = self.scene, self.scene.topic
        scene.settings = {
            "start_from": "2023-11-14T22:13:20.010000Z",
            "failures": {"policy": "quarantine"},
            "copy": {"chunk_records": 20, "transaction_timeout": 10},
        }
        for side in (scene.source, scene.target):
            side.create(topic, len(ENDS), {"max.message.bytes": "3000"} if side is scene.target else {})
        for partition, end in ENDS.items():
            scene.source.produce(topic, [record(partition, offset) for offset in range(end)], partition)
        scene.source.delete_before(topic, 3, GAP_UNTIL)
        scene.bare_run().clusters.ledger.ensure(scene.replication())
        snapshot = scene.bare_run().snapshot(scene.bare_run().view())
        self.names = {
            "{name}": scene.name,
            "{topic}": topic,
            "{source_cluster}": snapshot.source_cluster,
            "{source_topic_id}": snapshot.source[topic].topic_id,
            "{target_topic_id}": snapshot.target[topic].topic_id,
        }
        self.write_logs()
        self.write_ledger()
        self.write_store()

    def filled(self, text: str) -> str:
        for placeholder, name in self.names.items():
            text = text.replace(placeholder, name)
        return text

    def write_logs(self) -> None:
        scene = self.scene
        for number, runs in LOGS["target"].items():
            partition, rows = int(number), dict[int, Rec]()
            for first, source, count in runs:
                rows |= {first + more: record(partition, source + more) for more in range(count)}
            self.write_log(scene.topic, partition, rows)
        quarantine = scene.replication().quarantine_topic
        scene.target.create(quarantine, LOGS["quarantine_partitions"])
        for number, kept in LOGS["quarantine"].items():
            rows = {}
            for one in kept:
                original = record(*one["source"])
                headers = tuple((name, self.filled(value).encode()) for name, value in one["headers"])
                rows[one["offset"]] = Rec(original.key, original.value, headers, one["timestamp"])
            self.write_log(quarantine, int(number), rows)

    def write_log(self, topic: str, partition: int, rows: Mapping[int, Rec]) -> None:
        """Write the records at these offsets of an empty partition: a marker follows each transaction."""
        some, end = list[Rec](), 0
        for offset, one in rows.items():
            if offset != end:
                assert offset == end + 1
                self.write_chunk(topic, some, partition)
                some = []
            some.append(one)
            end = offset + 1
        self.write_chunk(topic, some, partition)
        wait_until(lambda: self.scene.target.is_settled([TopicPartition(topic, partition)]))
        assert [at for at, _ in read(self.scene.target.bootstrap, topic, partition)] == list(rows)

    def write_chunk(self, topic: str, records: Iterable[Rec], partition: int) -> None:
        self.producer.begin_transaction()
        send(self.producer, topic, records, partition)
        self.producer.commit_transaction(30)

    def write_ledger(self) -> None:
        entries = [json.loads(self.filled(line)) for line in (GOLDEN / "ledger.jsonl").read_text().splitlines()]
        receipts = [entry for entry in entries if entry["value"]["type"] == "receipt"]
        for entry, offset in zip(receipts, self.write(receipts), strict=True):
            self.receipts[key_of(entry)].append((entry["offset"], offset))
        others = [entry for entry in entries if entry not in receipts]
        for entry in others:
            if entry["value"].get("receipts_from"):
                entry["value"]["receipts_from"] = self.now_at(key_of(entry), entry["value"]["receipts_from"])
        self.write(others)

    def write(self, entries: Iterable[dict[str, Any]]) -> list[int]:
        """The offsets at which the entries lie now."""
        offsets = list[int | None]()
        self.producer.begin_transaction()
        for entry in entries:
            at = key_of(entry).ledger_partition
            self.producer.produce(
                entry["topic"],
                dump(entry["value"]),
                dump(entry["key"]),
                at,
                on_delivery=lambda _, message: offsets.append(message.offset()),
            )
            self.producer.flush(60)
        self.producer.commit_transaction(30)
        wait_until(lambda: self.scene.is_settled(*ENDS))
        return [offset for offset in offsets if offset is not None]

    def now_at(self, key: PartitionKey, offset: int) -> int:
        """The offset in the receipts topic that means the same as this one did."""
        after = [new for old, new in self.receipts[key] if old >= offset]
        return after[0] if after else self.receipts[key][-1][1] + 1

    def write_store(self) -> None:
        self.scene.store.close()
        path = self.scene.folder / "old.db"
        with sqlite3.connect(path) as db:
            db.executescript(self.filled((GOLDEN / "store.sql").read_text()))
            for run_id, text in db.execute("SELECT run_id, plan FROM kafka_replication_runs").fetchall():
                plan = json.loads(text)
                plan["receipts_from"] = self.planned_from(plan["receipts_from"])
                db.execute("UPDATE kafka_replication_runs SET plan = ? WHERE run_id = ?", (json.dumps(plan), run_id))
        self.scene.store = open_store(f"sqlite:///{path}")

    def planned_from(self, before: Mapping[str, int]) -> dict[str, int]:
        now = dict[str, int]()
        for key in self.receipts:
            old = PartitionKey(
                OLD_NAME, TopicPartition(f"{OLD_NAME}.events", key.source.partition), f"{OLD_NAME}.events"
            )
            if (offset := before.get(str(old.ledger_partition))) is not None:
                at = str(key.ledger_partition)
                now[at] = min(self.now_at(key, offset), now.get(at, 1 << 62))
        return now


def key_of(entry: Mapping[str, Any]) -> PartitionKey:
    _, name, topic, number, target, *_ = entry["key"]
    return PartitionKey(name, TopicPartition(topic, number), target)


@pytest.fixture
def half_done(scene: Scenario) -> Scenario:
    HalfDone(scene).prepare()
    return scene


def assert_all_there(scene: Scenario, *retried: tuple[int, int]) -> None:
    """What was there before, then the rest in the source's order, then what was ``retried``; each record once."""
    for partition, end in ENDS.items():
        before = copied_before(partition)
        rest = range(max(*before, GAP_UNTIL - 1 if partition == 3 else 0) + 1, end)
        again = [offset for number, offset in retried if number == partition]
        wanted = [record(partition, offset) for offset in (*before, *rest, *again)]
        found = [one for _, one in read(scene.target.bootstrap, scene.topic, partition)]
        assert [(one.key, one.value, one.headers, one.timestamp) for one in found] == [
            (one.key, one.value, one.headers, one.timestamp) for one in wanted
        ]


def numbers(report: RunReport) -> list[tuple[int, str, int, int]]:
    """For each range: its partition, and how many records this run copied, and found copied."""
    return sorted(
        (line.key.source.partition, str(line.range), line.copied, line.copied_before) for line in report.ranges
    )


def test_a_new_run_completes_each_partition_where_it_was_left(half_done: Scenario) -> None:
    assert [half_done.watermark(partition) for partition in ENDS] == [100, 60, 60, 75]
    report = half_done.run()
    assert report.outcome == "done", report.table()
    assert numbers(report) == [
        (0, "[100, 150)", 50, 0),
        (1, "[100, 160)", 0, 60),
        (2, "[140, 160)", 20, 0),
        (2, "[60, 140)", 0, 80),
        (3, "[75, 110)", 35, 0),
    ]
    assert [half_done.watermark(partition) for partition in ENDS] == [150, 160, 160, 110]
    assert_all_there(half_done)
    half_done.idle_run()


def test_the_run_that_was_planned_then_is_continued(half_done: Scenario) -> None:
    run, launcher = half_done.bare_run("old-run"), InProcess()
    made = steps.prepare(run, Request())
    assert sorted((planned.key.source.partition, str(planned.copy)) for planned in made.to_copy) == [
        (0, "[100, 150)"),
        (2, "[60, 160)"),
        (3, "[75, 110)"),
    ]
    report = runner.carry_out(run, made, launcher)
    assert report.outcome == "done", report.table()
    assert [half_done.watermark(partition) for partition in ENDS] == [150, 160, 160, 110]
    assert_all_there(half_done)
    half_done.idle_run()


def test_its_gap_its_backfills_and_its_failed_record_are_known(half_done: Scenario) -> None:
    assert half_done.run().outcome == "done"
    audited = audit(half_done.bare_run())
    assert audited.outcome == "clean", audited.text()
    assert [partition.quarantined for partition in audited.partitions] == [0, 0, 1, 0]
    half_done.target.set(half_done.topic, max_message_bytes="1000000")
    [retried] = ask(half_done, Action.RETRY, everything=True)
    assert (retried["offset"], retried["state"]) == (25, "retried")
    assert_all_there(half_done, TOO_LARGE)
    half_done.idle_run()
