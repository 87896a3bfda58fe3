"""The DAGs with OpenSearch as the target, on real Airflow, Spark and Kafka: run, backfill, audit, retry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stack.opensearch_server import OpenSearchServer
from tests.e2e.airflow_home import SECRET, Airflow
from tests.support.clusters import Brokers
from tests.support.opensearch import OpenSearchGround
from tests.support.scenario import Cluster, Rec

TOPIC, NAME, PARTITIONS = "af-e2e-search", "af-search", 2
ALL_DONE = dict.fromkeys(["plan", "replicate", "report"], "success")


@pytest.fixture(scope="module")
def ground(stack_folder: Path) -> Iterator[OpenSearchGround]:
    """A node of its own: the tests of another process kill the one that they share."""
    server = OpenSearchServer("opensearch-of-airflow", stack_folder)
    server.start()
    yield OpenSearchGround.of(server)
    server.kill()


def order(number: int, name: str = "") -> Rec:
    value = json.dumps({"n": number, "name": name or f"order {number}"}).encode()
    return Rec(b"%d" % number, value, (), 1_700_000_000_000 + number)


def offsets(ground: OpenSearchGround, partition: int) -> list[int]:
    """Of the documents that a search finds."""
    ground.ask("POST", f"{TOPIC}/_refresh")
    body = {"query": {"term": {"kafka.partition": partition}}, "size": 1_000, "sort": [{"kafka.offset": "asc"}]}
    found = [hit["_source"] for hit in ground.ask("POST", f"{TOPIC}/_search", body)["hits"]["hits"]]
    assert [document["n"] for document in found] == [document["kafka"]["offset"] for document in found]
    return [document["n"] for document in found]


@pytest.mark.slow
def test_runs_backfills_audits_and_retries(airflow: Airflow, source_cluster: Brokers, ground: OpenSearchGround) -> None:
    source = Cluster(source_cluster.bootstrap)
    source.create(TOPIC, PARTITIONS)
    for partition in range(PARTITIONS):
        source.produce(TOPIC, [order(number) for number in range(100)], partition)
    server = ground.server
    assert server is not None
    connection = {"conn_type": "opensearch", "host": "127.0.0.1", "port": server.port}
    airflow.environment["AIRFLOW_CONN_SEARCH"] = json.dumps({**connection, "login": "me", "password": SECRET})
    airflow.replicate(
        NAME,
        TOPIC,
        "start_from: latest\nfailures: {policy: quarantine}\n",
        target="connection: search, type: opensearch",
    )
    ground.create(TOPIC, PARTITIONS)
    ground.ask("PUT", f"{TOPIC}/_mapping", {"properties": {"name": {"type": "keyword"}}})

    opened, log = airflow.run(NAME)
    assert (opened["state"], opened["report"]["outcome"]) == ("success", "nothing_to_do"), log[-5000:]
    source.produce(TOPIC, [order(100), order(101, "x" * 40_000), order(102)], 1)
    first, log = airflow.run(NAME)
    assert (first["state"], first["tasks"]) == ("success", ALL_DONE), log[-5000:]
    [line] = first["report"]["ranges"]
    assert (line["copied"], line["quarantined"], line["digest_ok"]) == (2, 1, True)
    assert (offsets(ground, 0), offsets(ground, 1)) == ([], [100, 102])
    assert airflow.watermarks(NAME) == {0: 100, 1: 103}
    second, log = airflow.run(NAME)
    assert (second["state"], second["report"]["outcome"]) == ("success", "nothing_to_do")
    assert "spark-submit" not in log

    asked: dict[str, Any] = {"topics": [TOPIC], "from": "20", "until": "60", "dry_run": False}
    filled, log = airflow.run(f"{NAME}.backfill", **asked)
    assert (filled["state"], filled["tasks"]) == ("success", ALL_DONE), log[-5000:]
    assert (offsets(ground, 0), offsets(ground, 1)) == ([*range(20, 60)], [*range(20, 60), 100, 102])

    kept, log = airflow.run(f"{NAME}.failed", action="retry", all=True)
    assert (kept["state"], [record["done"] for record in kept["handle"]["records"]]) == ("failed", [False])
    assert "immense" in log and f"{TOPIC}-1" in log
    ground.ask("PUT", f"{TOPIC}/_mapping", {"properties": {"name": {"type": "keyword", "ignore_above": 8191}}})
    done, log = airflow.run(f"{NAME}.failed", action="retry", all=True)
    assert (done["state"], [record["done"] for record in done["handle"]["records"]]) == ("success", [True]), log
    assert offsets(ground, 1) == [*range(20, 60), 100, 101, 102]

    clean, log = airflow.run(f"{NAME}.audit")
    assert (clean["state"], clean["audit"]["outcome"]) == ("success", "clean"), log[-5000:]
    changed = f"{TOPIC}/_doc/{TOPIC}-1-102-1"
    document = ground.ask("GET", changed)["_source"]
    ground.ask("PUT", changed, {**document, "name": "another"}, refresh=True)
    differs, log = airflow.run(f"{NAME}.audit", topic=TOPIC, partition=1)
    assert (differs["state"], differs["audit"]["outcome"]) == ("failed", "differs")
    files = [file for file in airflow.folder.rglob("*") if file.is_file()]  # with Airflow's database and all logs
    assert [file for file in files if SECRET.encode() in file.read_bytes()] == []
