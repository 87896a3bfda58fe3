"""The DAG on real Airflow, Spark and Kafka: copy, then find nothing to do, then fail for a reason."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.airflow_home import SECRET, Airflow
from tests.support.checker import check, read
from tests.support.clusters import Brokers

TOPIC, PARTITIONS, RECORDS = "af-e2e-orders", 3, 100
ALL_DONE = dict.fromkeys(["plan", "replicate", "report"], "success")


def produce(cluster: Brokers, topic: str = TOPIC, records: int = RECORDS) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(PARTITIONS * records):
        producer.produce(topic, key=str(number), value=f"order {number}", partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def values(cluster: Brokers) -> list[bytes]:
    """Every record of the topic, as a `read_committed` reader sees them."""
    found = [record for partition in range(PARTITIONS) for _, record in read(cluster.bootstrap, TOPIC, partition)]
    return sorted(record.value or b"" for record in found)


def test_a_run_copies_and_the_next_is_idle(airflow: Airflow, source_cluster: Brokers, target_cluster: Brokers) -> None:
    produce(source_cluster)
    airflow.replicate("af-e2e", TOPIC)
    first, log = airflow.run("af-e2e")
    assert (first["state"], first["tasks"]) == ("success", ALL_DONE)
    assert "replication af-e2e failed" not in log
    assert first["report"]["outcome"] == "done"
    assert [(each["copied"], each["digest_ok"], each["watermark"]) for each in first["report"]["ranges"]] == [
        (RECORDS, True, RECORDS)
    ] * 3
    assert values(target_cluster) == values(source_cluster)
    assert airflow.watermarks("af-e2e") == dict.fromkeys(range(PARTITIONS), RECORDS)
    updated = first["assets"].pop(f"kafka://kafka_target/{TOPIC}")
    assert first["assets"] == {}
    assert (updated["records"], updated["run_id"]) == (PARTITIONS * RECORDS, first["report"]["run_id"])
    assert [(part["until"], part["watermark"]) for part in updated["partitions"]] == [(RECORDS, RECORDS)] * PARTITIONS
    assert SECRET not in log
    files = [
        file for file in airflow.folder.rglob("*") if file.is_file()
    ]  # Airflow's database with its XComs, logs, the store
    assert any(file.name == "airflow.db" for file in files)
    assert [file for file in files if SECRET.encode() in file.read_bytes()] == []
    assert "copied af-e2e-orders-0 [0, 100): 100 records" in log

    second, log = airflow.run("af-e2e")
    assert (second["state"], second["tasks"], second["report"]["outcome"]) == ("success", ALL_DONE, "nothing_to_do")
    assert second["assets"] == {}, "nothing was verified"
    assert "spark-submit" not in log
    assert len(values(target_cluster)) == PARTITIONS * RECORDS

    dry, log = airflow.run("af-e2e", dry_run=True, topics=[TOPIC])
    assert dry["tasks"] == {**dict.fromkeys(ALL_DONE, "skipped"), "plan": "success"}
    assert "af-e2e-orders-0  af-e2e-orders  in sync" in log
    assert (dry["plan"]["outcome"], len(dry["plan"]["partitions"])) == ("nothing_to_do", PARTITIONS)

    clean, log = airflow.run("af-e2e.audit")
    assert (clean["state"], clean["audit"]["outcome"]) == ("success", "clean")
    assert [each["by_content"] for each in clean["audit"]["partitions"]] == [RECORDS] * PARTITIONS

    producer = Producer({"bootstrap.servers": target_cluster.bootstrap})
    producer.produce(TOPIC, value="foreign", partition=1)
    assert producer.flush(30) == 0
    differs, log = airflow.run("af-e2e.audit", topic=TOPIC, partition=1)
    assert (differs["state"], differs["audit"]["outcome"]) == ("failed", "differs")
    assert [each["extra"] for each in differs["audit"]["partitions"]] == [1]
    assert "DIFFERS af-e2e-orders-1 extra target [101, 102): 1 record" in log


def test_without_a_plan_nothing_runs_and_the_lease_is_given_back(airflow: Airflow) -> None:
    airflow.replicate("af-e2e-missing", "af-e2e-no-such-topic")
    run, log = airflow.run("af-e2e-missing")
    assert run["state"] == "failed"
    assert run["tasks"] == {**dict.fromkeys(ALL_DONE, "upstream_failed"), "plan": "failed"}
    assert "unknown source topic af-e2e-no-such-topic. Remedy: " in log
    [_, text] = log.split("replication af-e2e-missing failed: run manual__")
    assert "task plan" in text and "unknown source topic af-e2e-no-such-topic. Remedy: " in text
    assert airflow.watermarks("af-e2e-missing") == {}

    airflow.replicate("af-e2e-missing", "af-e2e-no-such-topic", "nonsense: 1\n")
    run, log = airflow.run("af-e2e-missing")
    assert run["tasks"] == {**dict.fromkeys(ALL_DONE, "upstream_failed"), "plan": "failed"}
    [_, text] = log.split("replication af-e2e-missing failed: run manual__")
    assert "af-e2e-missing.yaml:7: key 'nonsense': unknown key" in text
    assert "remedy: correct the file" in log


@pytest.mark.slow
def test_airflow_and_the_command_line_at_once(
    airflow: Airflow, source_cluster: Brokers, target_cluster: Brokers
) -> None:
    """Whoever comes second waits for the lease and finds nothing left to copy."""
    topic, records = "af-e2e-twice", 2_000
    produce(source_cluster, topic, records)
    command = airflow.command(airflow.replicate("af-e2e-twice", topic, chunk=100))
    run, log = airflow.run("af-e2e-twice")
    out, errors = command.communicate()
    assert run["state"] == "success", log[-5000:]
    assert command.returncode == 0, errors[-5000:]
    reports = [run["report"], json.loads(out)]
    assert sum(each["copied"] for report in reports for each in report["ranges"]) == PARTITIONS * records
    for partition in range(PARTITIONS):
        assert check(source_cluster.bootstrap, target_cluster.bootstrap, topic, topic, partition).clean
    assert airflow.watermarks("af-e2e-twice") == dict.fromkeys(range(PARTITIONS), records)


def test_a_failed_run_tells_once_what_failed_and_the_remedy(
    airflow: Airflow, source_cluster: Brokers, target_cluster: Brokers
) -> None:
    """A partition that the plan refuses fails the report, which tells all of it."""
    airflow.replicate("af-e2e-refused", "af-e2e-refused")
    for cluster in (source_cluster, target_cluster):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("af-e2e-refused", 1, 1)])["af-e2e-refused"].result()
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce("af-e2e-refused", b"somebody was here")
        assert producer.flush(30) == 0
    run, log = airflow.run("af-e2e-refused")
    assert (run["state"], run["tasks"]["plan"], run["tasks"]["report"]) == ("failed", "success", "failed")
    assert run["assets"] == {}
    [_, text] = log.split("replication af-e2e-refused failed: run manual__")
    for words in ("task report", "1 of 1 ranges failed", "partition", "already holds records", "remedy: "):
        assert words in text
    assert "clear 'replicate' with its downstream tasks" in text
