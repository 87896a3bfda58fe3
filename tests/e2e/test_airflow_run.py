"""The DAG on real Airflow, Spark and Kafka: copy, then find nothing to do, then fail for a reason."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stack.kafka_cluster import KafkaCluster
from tests.e2e.airflow_home import SECRET, Airflow

TOPIC, PARTITIONS, RECORDS = "af-e2e-orders", 3, 100
ALL_DONE = dict.fromkeys(["plan", "copy", "verify", "advance", "report"], "success")


def produce(cluster: KafkaCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(PARTITIONS * RECORDS):
        producer.produce(TOPIC, key=str(number), value=f"order {number}", partition=number % PARTITIONS)
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


def test_without_a_plan_nothing_runs_and_the_lease_is_given_back(airflow: Airflow) -> None:
    airflow.replicate("af-e2e-missing", "af-e2e-no-such-topic")
    run, log = airflow.run("af-e2e-missing")
    assert run["state"] == "failed"
    assert run["tasks"] == {**dict.fromkeys(ALL_DONE, "upstream_failed"), "plan": "failed"}
    assert "unknown source topic af-e2e-no-such-topic. Remedy: " in log
    assert airflow.watermarks("af-e2e-missing") == {}
