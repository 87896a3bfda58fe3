"""`by_key` chooses the partitions that Java's producer chooses."""

from __future__ import annotations

import random
import subprocess

import pytest

from kafka_replication.kafka.partitioner import partitioner
from kafka_replication.model.choices import Partitioning
from kafka_replication.model.offsets import TopicPartition
from stack.artifacts import kafka_jars
from stack.java import java
from tests.support.checker import read
from tests.support.scenario import Rec, Scenario

KEYS, PARTITIONS = 100_000, 7
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-_.:/ äßñ\u4e16\u754c\U0001f600"


def keys() -> list[str]:
    """Different ones of 1 to 40 letters, so that every length modulo 4 and bytes above 127 are among them."""
    dice = random.Random(17)
    made = {"".join(dice.choices(LETTERS, k=1 + number % 40)).strip() or str(number) for number in range(2 * KEYS)}
    return sorted(made)[:KEYS]


def produce_with_java(bootstrap: str, topic: str, keys_: list[str]) -> None:
    command = [java(), "-cp", f"{kafka_jars()}/*", "org.apache.kafka.tools.ConsoleProducer"]
    command += ["--bootstrap-server", bootstrap, "--topic", topic]
    command += ["--property", "parse.key=true", "--property", "key.separator=\t"]
    lines = "".join(f"{key}\tv\n" for key in keys_)
    subprocess.run(command, input=lines.encode(), check=True, capture_output=True, timeout=300)


@pytest.mark.slow  # `test_partitioner.py` has values of Java
def test_the_same_keys_lie_in_the_same_partitions(scene: Scenario) -> None:
    scene.source.create(scene.topic, 3)
    java_topic, wanted = f"{scene.name}.java", keys()
    scene.target.create(java_topic, PARTITIONS)
    produce_with_java(scene.target.bootstrap, java_topic, wanted)
    by_java = {
        record.key or b"": number
        for number in range(PARTITIONS)
        for _, record in read(scene.target.bootstrap, java_topic, number)
    }
    assert by_java.keys() == {key.encode() for key in wanted}

    source = TopicPartition(scene.topic, 0)
    choose = partitioner(Partitioning(name="by_key"), source, range(PARTITIONS)).choose
    assert {key: choose((0, 1, key, b"v", None)) for key in by_java} == by_java

    some = wanted[:: KEYS // 3_000]
    scene.settings |= {"partitioning": "by_key", "target_topics": {"partitions": PARTITIONS}}
    for partition in range(3):
        scene.source.produce(scene.topic, [Rec(key.encode(), b"v") for key in some[partition::3]], partition)
    assert scene.run().outcome == "done"
    copied = {
        record.key or b"": number
        for number in range(PARTITIONS)
        for _, record in read(scene.target.bootstrap, scene.topic, number)
    }
    assert copied == {key.encode(): by_java[key.encode()] for key in some}
