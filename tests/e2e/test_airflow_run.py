"""The DAG on real Airflow, Spark and Kafka: copy, then find nothing to do, then fail for a reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_replication.store import open_store
from stack.kafka_cluster import KafkaCluster
from tests.checker import check

REPOSITORY = Path(__file__).parents[2]
TOPIC, PARTITIONS, RECORDS = "af-e2e-orders", 3, 100
SECRET = "do-not-show-me"
FILE = """\
name: {name}
source: {{connection: kafka_source}}
target: {{connection: kafka_target}}
topics: {{include: [{topic}]}}
retries: {{attempts: 0}}
copy: {{chunk_records: {chunk}}}
lease: {{wait: 300}}
alerts: {{callback: "alerts.oncall:tell"}}
"""
ONCALL = """\
import json, os

def tell(context):
    with open(os.environ["ALERTS"], "a") as file:
        file.write(json.dumps([context["dag"].dag_id, context["run_id"], context["alert"]]) + "\\n")
"""
ALL_DONE = dict.fromkeys(["plan", "copy", "verify", "advance", "report"], "success")


@dataclass
class Airflow:
    """An Airflow home with the repository's DAG files and one store."""

    folder: Path
    environment: dict[str, str]

    def replicate(self, name: str, topic: str, chunk: int = 100_000) -> Path:
        file = self.folder / "dags" / "replications" / f"{name}.yaml"
        file.write_text(FILE.format(name=name, topic=topic, chunk=chunk))
        return file

    def run(self, name: str, **conf: Any) -> tuple[dict[str, Any], str]:
        """What became of a run, and everything that was logged."""
        file, task = ("replication_audits_dag.py", "audit") if name.endswith(".audit") else ("replications_dag.py", "report")
        script = [str(Path(__file__).with_name("airflow_run.py")), str(self.folder / "dags" / file)]
        done = subprocess.run(
            [sys.executable, *script, name, json.dumps(conf), task],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        log = done.stdout + done.stderr
        assert done.returncode == 0, log[-5000:]
        return json.loads(done.stdout.strip().splitlines()[-1]), log

    def alerts(self) -> list[list[str]]:
        """What the user's function was told since this was asked last: DAG id, run id, text."""
        file = Path(self.environment["ALERTS"])
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    def command(self, file: Path) -> subprocess.Popen[str]:
        """``kafka-replication run FILE --json``, under way."""
        line = [sys.executable, "-m", "kafka_replication.cli", "run", str(file), "--json"]
        return subprocess.Popen(line, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def watermarks(self, name: str) -> dict[int, int]:
        store = open_store(self.environment["KAFKA_REPLICATION_STORE_URL"])
        try:
            assert store.lease_of(name) is None, "the lease was not given back"
            return {key.source.partition: each.offset for key, each in store.watermarks(name).items()}
        finally:
            store.close()


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory, source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Airflow:
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "dags" / "replications").mkdir(parents=True)
    for file in (REPOSITORY / "dags").glob("*.py"):
        (folder / "dags" / file.name).write_text(file.read_text())
    (folder / "library" / "alerts").mkdir(parents=True)
    (folder / "library" / "alerts" / "oncall.py").write_text(ONCALL)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW_", "KAFKA_REPLICATION_"))}
    environment = inherited | {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "plugins"), str(folder / "library")]),
        "ALERTS": str(folder / "told"),
        "KAFKA_REPLICATION_STORE_URL": f"sqlite:///{folder}/store.db",
        "AIRFLOW_CONN_KAFKA_SOURCE": connection(source_cluster),
        "AIRFLOW_CONN_KAFKA_TARGET": connection(target_cluster),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[*]"}),
    }
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], env=environment, check=True, capture_output=True)
    return Airflow(folder, environment)


def connection(cluster: KafkaCluster) -> str:
    return json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": cluster.bootstrap, "ssl.key.password": SECRET}})


def produce(cluster: KafkaCluster, topic: str = TOPIC, records: int = RECORDS) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(PARTITIONS * records):
        producer.produce(topic, key=str(number), value=f"order {number}", partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def values(cluster: KafkaCluster) -> list[bytes]:
    """Every record of the topic, as a `read_committed` reader sees them."""
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": "reader", "isolation.level": "read_committed",
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found = []
    while batch := consumer.consume(1000, 3):
        found += [each.value() or b"" for each in batch if each.error() is None]
    consumer.close()
    return sorted(found)


def test_a_run_copies_and_the_next_is_idle(airflow: Airflow, source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    produce(source_cluster)
    airflow.replicate("af-e2e", TOPIC)
    first, log = airflow.run("af-e2e")
    assert (first["state"], first["tasks"]) == ("success", ALL_DONE)
    assert airflow.alerts() == []
    assert first["report"]["outcome"] == "done"
    assert [(each["copied"], each["digest_ok"], each["watermark"]) for each in first["report"]["ranges"]] == [(RECORDS, True, RECORDS)] * 3
    assert values(target_cluster) == values(source_cluster)
    assert airflow.watermarks("af-e2e") == dict.fromkeys(range(PARTITIONS), RECORDS)
    assert SECRET not in log
    assert "copied af-e2e-orders-0 [0, 100): 100 records" in log

    second, log = airflow.run("af-e2e")
    assert (second["state"], second["tasks"], second["report"]["outcome"]) == ("success", ALL_DONE, "nothing_to_do")
    assert "spark-submit" not in log
    assert len(values(target_cluster)) == PARTITIONS * RECORDS

    dry, log = airflow.run("af-e2e", dry_run=True, topics=[TOPIC])
    assert dry["tasks"] == {**dict.fromkeys(ALL_DONE, "skipped"), "plan": "success"}
    assert "af-e2e-orders-0  af-e2e-orders  in sync" in log

    clean, log = airflow.run("af-e2e.audit")
    assert (clean["state"], clean["report"]["outcome"]) == ("success", "clean")
    assert [each["by_content"] for each in clean["report"]["partitions"]] == [RECORDS] * PARTITIONS

    producer = Producer({"bootstrap.servers": target_cluster.bootstrap})
    producer.produce(TOPIC, value="foreign", partition=1)
    assert producer.flush(30) == 0
    differs, log = airflow.run("af-e2e.audit", topic=TOPIC, partition=1)
    assert (differs["state"], differs["report"]["outcome"]) == ("failed", "differs")
    assert [each["extra"] for each in differs["report"]["partitions"]] == [1]
    assert "DIFFERS af-e2e-orders-1 extra target [101, 102): 1 record" in log


def test_without_a_plan_nothing_runs_and_the_lease_is_given_back(airflow: Airflow) -> None:
    airflow.replicate("af-e2e-missing", "af-e2e-no-such-topic")
    run, log = airflow.run("af-e2e-missing")
    assert run["state"] == "failed"
    assert run["tasks"] == {**dict.fromkeys(ALL_DONE, "upstream_failed"), "plan": "failed"}
    assert "unknown source topic af-e2e-no-such-topic. Remedy: " in log
    [[dag_id, run_id, text]] = airflow.alerts()
    assert (dag_id, run_id.startswith("manual__")) == ("af-e2e-missing", True)
    assert text.startswith(f"replication af-e2e-missing failed: run {run_id}, task plan\n")
    assert "unknown source topic af-e2e-no-such-topic. Remedy: " in text
    assert airflow.watermarks("af-e2e-missing") == {}


def test_airflow_and_the_command_line_at_once(airflow: Airflow, source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    """Whoever comes second waits for the lease and finds nothing left to copy."""
    topic, records = "af-e2e-twice", 2_000
    produce(source_cluster, topic, records)
    command = airflow.command(airflow.replicate("af-e2e-twice", topic, chunk=100))
    run, log = airflow.run("af-e2e-twice")
    out, errors = command.communicate(timeout=300)
    assert run["state"] == "success", log[-5000:]
    assert command.returncode == 0, errors[-5000:]
    reports = [run["report"], json.loads(out)]
    assert sum(each["copied"] for report in reports for each in report["ranges"]) == PARTITIONS * records
    for partition in range(PARTITIONS):
        assert check(source_cluster.bootstrap, target_cluster.bootstrap, topic, topic, partition).clean
    assert airflow.watermarks("af-e2e-twice") == dict.fromkeys(range(PARTITIONS), records)


def test_a_failed_run_tells_once_what_failed_and_the_remedy(
    airflow: Airflow, source_cluster: KafkaCluster, target_cluster: KafkaCluster
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
    [[_, run_id, text]] = airflow.alerts()
    assert text.startswith(f"replication af-e2e-refused failed: run {run_id}, task report\n1 of 1 ranges failed")
    for words in ("partition", "already holds records", "remedy: ", "clear 'copy' with its downstream tasks"):
        assert words in text
    assert text.splitlines()[0] in log
