"""Open transactions: the source's end a run, the ledger's are waited for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import yaml
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.copying.protocol import Copier
from kafka_replication.kafka import clients, offsets
from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.kafka.record_engine import RecordEngine
from kafka_replication.kafka.sink import KafkaSink
from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.model.errors import Stalled
from kafka_replication.model.offsets import TopicPartition as At
from stack.kafka_cluster import KafkaCluster
from tests.support.checker import high_watermark
from tests.support.clusters import release_for
from tests.support.command_line import cli, ended
from tests.support.jobs import copies
from tests.support.scenario import Cluster, Rec, Scenario, numbered, only, send
from tests.support.waiting import SAFETY, wait_until


@contextmanager
def open_transaction(cluster: Cluster, topic: str, partition: int) -> Iterator[None]:
    """Somebody's transaction, open there while the body runs, then aborted."""
    producer = cluster.transactional()
    producer.begin_transaction()
    send(producer, topic, [Rec(b'["position", "somebody", "t", 0, "t"]', b"{}")], partition)
    try:
        yield
    finally:
        producer.abort_transaction(30)


def test_invisible_offsets_of_a_later_leader_are_no_truncation(
    own_source_scene: Scenario, own_cluster: KafkaCluster
) -> None:
    """The epoch of the last record is older than the markers behind it: resuming there with it would look like a lost log."""
    scene = own_source_scene
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    scene.run()
    own_cluster.broker(0).kill()
    own_cluster.broker(0).start()
    scene.source.transaction(scene.topic, numbered(5, 900), abort=True)
    assert only(scene.run()).copied == 0
    scene.source.produce(scene.topic, numbered(10, 50))
    assert only(scene.run()).copied == 10
    scene.assert_copied()


def test_a_run_ends_at_the_last_stable_offset(scene: Scenario, caplog: pytest.LogCaptureFixture) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(40))
    producer = scene.source.transactional()
    producer.begin_transaction()
    send(producer, scene.topic, numbered(10, 40))
    scene.source.produce(scene.topic, numbered(20, 50))  # committed, but behind the open transaction
    report = scene.run()
    assert (only(report).range.until, only(report).copied) == (40, 40)
    withheld = (
        "the last stable offset is 40, the high watermark 70; the 30 offsets between them are withheld until it ends"
    )
    (line,) = {line for line in caplog.messages if f"{scene.topic}-0: a transaction is open: {withheld}" in line}
    text = yaml.safe_dump(scene.document())
    looks = [ended(cli(scene, text, scene.source.bootstrap, command))[1] for command in ("check", "status")]
    for told in (line, *looks) if not release_for("source").zookeeper else ():  # Kafka 2.8 does not tell
        assert "(none of our replications), producer id " in told and ", coordinator 1" in told, told
        assert "open since 2" in told and "brokers abort it by 2" in told and "hanging:" not in told
    code, out, _ = ended(cli(scene, text, scene.source.bootstrap, "status", "--json"))
    [line] = json.loads(out)["partitions"]
    assert (code, line["source_end"], line["high_watermark"], line["withheld"], line["lag"]) == (0, 40, 70, 30, 0)
    scene.idle_run()
    producer.commit_transaction(30)
    wait_until(lambda: scene.source.is_settled([At(scene.topic, 0)]))
    report = scene.run()
    assert (only(report).range.from_, only(report).copied, only(report).not_visible) == (40, 30, 1)
    scene.assert_copied()


def test_an_open_transaction_on_the_target_partition_is_waited_for(scene: Scenario) -> None:
    """Records of somebody whose transaction is open are not seen yet: they may not be taken for none."""
    for side in (scene.source, scene.target):
        side.create(scene.topic)
    scene.source.produce(scene.topic, numbered(40))
    done = list[str]()
    with open_transaction(scene.target, scene.topic, 0):
        running = threading.Thread(target=lambda: done.append(scene.run().outcome))
        running.start()
        running.join(3)
        assert running.is_alive()
    running.join(SAFETY)
    assert done == ["done"]
    scene.assert_copied()


def naive_next_offset(scene: Scenario) -> int:
    """What a reader that does not wait takes for the newest position."""
    reader = Consumer(
        {
            "bootstrap.servers": scene.target.bootstrap,
            "group.id": "naive",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(POSITIONS, scene.key().ledger_partition, OFFSET_BEGINNING)])
    newest = -1
    try:
        while True:
            message = reader.poll(30)
            assert message is not None
            if message.error():
                return newest
            if message.key() == scene.key().entry("position"):
                newest = json.loads(message.value() or b"")["next_offset"]
    finally:
        reader.close()


def test_the_ledger_is_never_read_stale(scene: Scenario) -> None:
    """Another partition's transaction, open on the same ledger partition, hides the newest entry: the reader waits it out."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(300))
    job = scene.copy_job()
    hiding = open_transaction(scene.target, POSITIONS, scene.key().ledger_partition)

    def after_first_chunk(task: CopyTask, result: CopyResult) -> None:
        if result.chunks == 1:
            hiding.__enter__()

    settings = job.replication.copying.model_copy(update={"chunk_records": 100})
    copier = Copier(
        engine=RecordEngine(job.source, settings),
        sink=KafkaSink(job.target, settings),
        settings=settings,
        progress=after_first_chunk,
    )
    result = copier.copy(copies(job)[0])
    answers = list[int]()
    admin = clients.admin(job.target)

    def ask() -> None:
        position = KafkaLedger(job.target, admin, scene.name).position(scene.key())
        answers.append(position.next_offset if position else -1)

    asking = threading.Thread(target=ask)
    try:
        assert (result.error, result.copied) == (None, 300)
        assert naive_next_offset(scene) == 100
        asking.start()
        asking.join(2)
        assert asking.is_alive() and not answers
    finally:
        hiding.__exit__(None, None, None)
    asking.join(SAFETY)
    assert answers == [300]
    assert scene.run().outcome == "done"
    scene.assert_copied()


def test_the_wait_has_an_end_and_a_name(scene: Scenario) -> None:
    scene.target.create(scene.topic)
    admin = clients.admin({"bootstrap.servers": scene.target.bootstrap})
    at = At(scene.topic, 0)
    with open_transaction(scene.target, scene.topic, 0):
        end = high_watermark(scene.target.bootstrap, scene.topic, 0)
        with pytest.raises(Stalled) as stalled:
            offsets.stable_ends(admin, [at], deadline=0.3)
    assert f"{scene.topic}-0: the last stable offset stays at 0, below {end}" in stalled.value.what
    assert "find-hanging" in stalled.value.remedy


def test_the_last_line_of_a_producer_that_can_do_nothing_any_more_is_logged(
    scene: Scenario, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Here its time-out is longer than the broker allows; a missing right ends it in the same way."""
    refused = {"transactional.id": scene.name, "transaction.timeout.ms": 3_600_000}
    producer = clients.producer({"bootstrap.servers": scene.target.bootstrap}, **refused)
    with pytest.raises(KafkaException):
        producer.init_transactions(30)
    assert "FATAL" not in capfd.readouterr().err

    def is_logged() -> bool:
        with suppress(KafkaException):
            producer.poll(0.05)
        return any(one.name == clients.log.name and "FATAL" in one.getMessage() for one in caplog.records)

    wait_until(is_logged)
