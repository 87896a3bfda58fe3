"""The DAGs with OpenSearch or HBase as the target, on real Airflow, Spark and Kafka: run, backfill, audit, retry."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from kafka_replication.kafka.partitioner import partition_of_key
from kafka_replication.model.choices import HBASE, LATEST, OPENSEARCH
from stack.hbase_server import HBaseServer
from stack.opensearch_server import OpenSearchServer
from tests.e2e.airflow_home import SECRET, Airflow
from tests.support.clusters import Brokers
from tests.support.hbase import HBaseGround
from tests.support.opensearch import OpenSearchGround
from tests.support.scenario import Cluster, Rec

PARTITIONS = 2
LONG = 40_000  # characters, which the target refuses at first
ALL_DONE = dict.fromkeys(["plan", "replicate", "report"], "success")


class Elsewhere(Protocol):
    """A target that is no Kafka cluster, with a topic of its own there."""

    kind: str
    refusal: str  # in its reason for a record that is too long

    @property
    def topic(self) -> str:
        return f"af-e2e-{self.kind}"

    def connection(self) -> dict[str, Any]: ...

    def prepare(self) -> None:
        """Create the topic so that it refuses what is too long."""

    def relax(self) -> None:
        """Refuse it no more."""

    def offsets(self, partition: int) -> list[int]:
        """Of the records that a reader finds."""

    def change(self, partition: int, offset: int) -> None:
        """Change a record."""

    def newest(self, topic: str) -> dict[str, bytes | None]:
        """The value that a reader of a topic of the shape ``latest`` finds at each key."""

    def change_newest(self, topic: str, key: str) -> None:
        """Change what is at a key."""


@dataclass
class Search(Elsewhere):
    ground: OpenSearchGround
    kind = OPENSEARCH
    refusal = "immense"

    def connection(self) -> dict[str, Any]:
        assert self.ground.server is not None
        return {"port": self.ground.server.port, "login": "me", "password": SECRET}

    def prepare(self) -> None:
        self.ground.create(self.topic, PARTITIONS)
        self.ground.ask("PUT", f"{self.topic}/_mapping", {"properties": {"name": {"type": "keyword"}}})

    def relax(self) -> None:
        name = {"type": "keyword", "ignore_above": 8191}
        self.ground.ask("PUT", f"{self.topic}/_mapping", {"properties": {"name": name}})

    def offsets(self, partition: int) -> list[int]:
        self.ground.ask("POST", f"{self.topic}/_refresh")
        body = {"query": {"term": {"kafka.partition": partition}}, "size": 1_000, "sort": [{"kafka.offset": "asc"}]}
        found = [hit["_source"] for hit in self.ground.ask("POST", f"{self.topic}/_search", body)["hits"]["hits"]]
        assert [document["n"] for document in found] == [document["kafka"]["offset"] for document in found]
        return [document["n"] for document in found]

    def change(self, partition: int, offset: int) -> None:
        self.change_newest(self.topic, f"{self.topic}-{partition}-{offset}-1")

    def newest(self, topic: str) -> dict[str, bytes | None]:
        return at_keys(self.ground, topic)

    def change_newest(self, topic: str, key: str) -> None:
        changed = f"{topic}/_doc/{key}"
        document = self.ground.ask("GET", changed)["_source"]
        self.ground.ask("PUT", changed, {**document, "name": "another"}, refresh=True)


@dataclass
class Rows(Elsewhere):
    ground: HBaseGround
    kind = HBASE
    refusal = "too many for a cell"

    def connection(self) -> dict[str, Any]:
        return {"port": self.ground.server.port}

    def prepare(self) -> None:
        self.ground.create(self.topic, PARTITIONS)
        self.ground.limit(self.topic, LONG // 2)

    def relax(self) -> None:
        self.ground.unlimit(self.topic)

    def offsets(self, partition: int) -> list[int]:
        found = self.ground.visible(self.topic, partition)
        assert [json.loads(record[3] or b"")["n"] for _, record in found] == [offset for offset, _ in found]
        return [offset for offset, _ in found]

    def change(self, partition: int, offset: int) -> None:
        row = struct.pack(">IIQ", partition, 1, offset)
        self.ground.put_cells(self.topic, row, {b"value": b"another"})

    def newest(self, topic: str) -> dict[str, bytes | None]:
        return at_keys(HBaseGround.of(self.ground.server, LATEST), topic)

    def change_newest(self, topic: str, key: str) -> None:
        at = self.ground.timestamp(topic, key.encode())
        self.ground.put_cells(topic, key.encode(), {b"value": b"another"}, at)


def at_keys(ground: OpenSearchGround | HBaseGround, topic: str) -> dict[str, bytes | None]:
    found = [record for partition in range(PARTITIONS) for _, record in ground.visible(topic, partition)]
    assert len({record[2] for record in found}) == len(found)
    return {(record[2] or b"").decode(): record[3] for record in found}


def search(folder: Path) -> tuple[Search, Callable[[], None]]:
    server = OpenSearchServer("opensearch-of-airflow", folder)
    server.start()
    return Search(OpenSearchGround.of(server)), server.kill


def rows(folder: Path) -> tuple[Rows, Callable[[], None]]:
    server = HBaseServer("hbase-of-airflow", folder)
    server.start()
    return Rows(HBaseGround(server)), server.stop


@pytest.fixture(params=[search, rows])
def there(request: pytest.FixtureRequest, stack_folder: Path) -> Iterator[Elsewhere]:
    """A server of its own: the tests of another process kill the one that they share."""
    target, end = request.param(stack_folder)
    yield target
    end()


def order(number: int, name: str = "") -> Rec:
    value = json.dumps({"n": number, "name": name or f"order {number}"}).encode()
    return Rec(b"%d" % number, value, (), 1_700_000_000_000 + number)


def connect(airflow: Airflow, there: Elsewhere) -> None:
    connection = {"conn_type": there.kind, "host": "127.0.0.1", **there.connection()}
    airflow.environment["AIRFLOW_CONN_ELSEWHERE"] = json.dumps(connection)


@pytest.mark.slow
def test_runs_backfills_audits_and_retries(airflow: Airflow, source_cluster: Brokers, there: Elsewhere) -> None:
    topic, name = there.topic, f"af-{there.kind}"
    source = Cluster(source_cluster.bootstrap)
    source.create(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        source.produce(topic, [order(number) for number in range(100)], partition)
    connect(airflow, there)
    airflow.replicate(
        name,
        topic,
        "start_from: latest\nfailures: {policy: quarantine}\n",
        target=f"connection: elsewhere, type: {there.kind}",
    )
    there.prepare()

    opened, log = airflow.run(name)
    assert (opened["state"], opened["report"]["outcome"]) == ("success", "nothing_to_do"), log[-5000:]
    source.produce(topic, [order(100), order(101, "x" * LONG), order(102)], 1)
    first, log = airflow.run(name)
    assert (first["state"], first["tasks"]) == ("success", ALL_DONE), log[-5000:]
    [line] = first["report"]["ranges"]
    assert (line["copied"], line["quarantined"], line["digest_ok"]) == (2, 1, True)
    assert (there.offsets(0), there.offsets(1)) == ([], [100, 102])
    assert airflow.watermarks(name) == {0: 100, 1: 103}
    second, log = airflow.run(name)
    assert (second["state"], second["report"]["outcome"]) == ("success", "nothing_to_do")
    assert "spark-submit" not in log

    asked: dict[str, Any] = {"topics": [topic], "from": "20", "until": "60", "dry_run": False}
    filled, log = airflow.run(f"{name}.backfill", **asked)
    assert (filled["state"], filled["tasks"]) == ("success", ALL_DONE), log[-5000:]
    assert (there.offsets(0), there.offsets(1)) == ([*range(20, 60)], [*range(20, 60), 100, 102])

    kept, log = airflow.run(f"{name}.failed", action="retry", all=True)
    assert (kept["state"], [record["done"] for record in kept["handle"]["records"]]) == ("failed", [False])
    assert there.refusal in log and f"{topic}-1" in log
    there.relax()
    done, log = airflow.run(f"{name}.failed", action="retry", all=True)
    assert (done["state"], [record["done"] for record in done["handle"]["records"]]) == ("success", [True]), log
    assert there.offsets(1) == [*range(20, 60), 100, 101, 102]

    clean, log = airflow.run(f"{name}.audit")
    assert (clean["state"], clean["audit"]["outcome"]) == ("success", "clean"), log[-5000:]
    there.change(1, 102)
    differs, log = airflow.run(f"{name}.audit", topic=topic, partition=1)
    assert (differs["state"], differs["audit"]["outcome"]) == ("failed", "differs")
    files = [file for file in airflow.folder.rglob("*") if file.is_file()]  # with Airflow's database and all logs
    assert [file for file in files if SECRET.encode() in file.read_bytes()] == []


@pytest.mark.slow
def test_the_newest_record_of_each_key_with_the_shape_latest(
    airflow: Airflow, source_cluster: Brokers, there: Elsewhere
) -> None:
    topic, name, wanted = f"{there.topic}-{LATEST}", f"af-{there.kind}-{LATEST}", dict[str, bytes | None]()
    numbers = itertools.count()
    source = Cluster(source_cluster.bootstrap)
    source.create(topic, PARTITIONS)
    connect(airflow, there)
    airflow.replicate(name, topic, target=f"connection: elsewhere, type: {there.kind}, shape: {LATEST}")

    def produce(keys: str, deleted: str = "") -> None:
        """A record for each letter, then one without a value for each that is deleted."""
        records = [*((key, order(next(numbers)).value) for key in keys), *((key, None) for key in deleted)]
        for partition in range(PARTITIONS):
            own = [one for one in records if partition_of_key("murmur2", one[0].encode(), PARTITIONS) == partition]
            source.produce(topic, [Rec(key.encode(), value) for key, value in own], partition)
        wanted.update(records)

    def ran(copied: int, superseded: int, deleted: list[str]) -> None:
        done, log = airflow.run(name)
        assert (done["state"], done["tasks"]) == ("success", ALL_DONE), log[-5000:]
        lines = done["report"]["ranges"]
        assert all(line["digest_ok"] for line in lines) and done["report"]["promise"] == LATEST
        assert sum(line["copied"] for line in lines) == copied
        assert sum(line["superseded"] for line in lines) == superseded
        assert there.newest(topic) == wanted
        assert sorted(key for key, value in wanted.items() if value is None) == deleted

    produce("abcdefabcdab", deleted="c")
    ran(13, 7, ["c"])
    produce("abcgf", deleted="ad")
    ran(7, 1, ["a", "d"])
    idle, log = airflow.run(name)
    assert (idle["state"], idle["report"]["outcome"]) == ("success", "nothing_to_do")
    assert "spark-submit" not in log
    clean, log = airflow.run(f"{name}.audit")
    assert (clean["state"], clean["audit"]["outcome"]) == ("success", "clean"), log[-5000:]
    there.change_newest(topic, "b")
    differs, log = airflow.run(f"{name}.audit")
    assert (differs["state"], differs["audit"]["outcome"]) == ("failed", "differs")
