"""The DAGs with OpenSearch or HBase as the target, on real Airflow, Spark and Kafka: run, backfill, audit, retry."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from kafka_replication.model.targets import HBASE, OPENSEARCH
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
        changed = f"{self.topic}/_doc/{self.topic}-{partition}-{offset}-1"
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


@pytest.mark.slow
def test_runs_backfills_audits_and_retries(airflow: Airflow, source_cluster: Brokers, there: Elsewhere) -> None:
    topic, name = there.topic, f"af-{there.kind}"
    source = Cluster(source_cluster.bootstrap)
    source.create(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        source.produce(topic, [order(number) for number in range(100)], partition)
    connection = {"conn_type": there.kind, "host": "127.0.0.1", **there.connection()}
    airflow.environment["AIRFLOW_CONN_ELSEWHERE"] = json.dumps(connection)
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
