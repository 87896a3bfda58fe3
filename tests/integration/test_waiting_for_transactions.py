"""Nobody waits without a word for an open transaction: whoever meets it names it, its owner and its end."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import yaml

from kafka_replication.kafka import brokers, clients, offsets
from kafka_replication.kafka.batch_scan import connect
from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.model.errors import Stalled, TargetLost
from kafka_replication.model.offsets import TopicPartition as At
from kafka_replication.reporting.progress import Progress
from kafka_replication.runs import progress as watching
from kafka_replication.runtime import deadline
from kafka_replication.wire import fetching, transactions
from kafka_replication.wire.batch import batches
from tests.support.actions import copied_once
from tests.support.command_line import cli, ended
from tests.support.jobs import InProcess, copy_once
from tests.support.raw_produce import RawRecord, raw_batch
from tests.support.scenario import Rec, Scenario, numbered, send
from tests.support.waiting import wait_until


@contextmanager
def left_open(scene: Scenario, transactional_id: str, at: At) -> Iterator[None]:
    """A transaction that nobody ends while the body runs."""
    producer = scene.target.producer(transactional_id=transactional_id, transaction_timeout_ms=120_000)
    producer.init_transactions(30)
    producer.begin_transaction()
    send(producer, at.topic, [Rec(b'["position", "somebody", "t", 0, "t"]', b"{}")], at.partition)
    try:
        yield
    finally:
        producer.abort_transaction(30)


def test_a_wait_names_the_transaction_its_owner_and_its_end(
    scene: Scenario, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "FIRST_LINE", 0.0)
    scene.target.create(scene.topic)
    admin, at = clients.admin({"bootstrap.servers": scene.target.bootstrap}), At(scene.topic, 0)
    owners = {scene.key().transactional_id: f"replication {scene.name}", scene.topic: "none of our replications"}
    for transactional_id, owner in owners.items():
        caplog.clear()
        with left_open(scene, transactional_id, at), pytest.raises(Stalled) as stalled:
            offsets.stable_ends(admin, [at], deadline=0.3)
        told = f"transactional id {transactional_id} ({owner}), producer id "
        assert told in stalled.value.what and "brokers abort it by 2" in stalled.value.what
        (said,) = [line for line in caplog.messages if line.startswith("waiting for the end of a transaction")]
        assert f"hides {at} from " in said and told in said


def test_what_outlives_its_time_out_hangs_and_the_command_that_ends_it_is_told(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers look only every few seconds, by which a transaction lives longer. Without that it counts as hanging."""
    scene.target.create(scene.topic)
    scene.target.produce(scene.topic, numbered(7))
    at = At(scene.topic, 0)
    admin = clients.admin({"bootstrap.servers": scene.target.bootstrap})
    with left_open(scene, scene.topic, at):
        assert "hanging" not in brokers.named(admin, at)
        monkeypatch.setattr(brokers, "SWEEP", -timedelta(seconds=120))  # the time-out of this one
        told = brokers.named(admin, at)
    assert f"transactional id {scene.topic} (none of our replications)" in told and "hanging: its time-out was" in told
    assert told.endswith(f"abort --topic {scene.topic} --partition 0 --start-offset 7")


def test_it_is_told_which_records_lie_in_whose_open_transaction(scene: Scenario) -> None:
    """Without those of others, and of transactions of the same producer that have ended."""
    scene.target.create(scene.topic)
    at = At(scene.topic, 0)
    ids = [scene.key().transactional_id, scene.topic]
    ours, other = (scene.target.producer(transactional_id=one, transaction_timeout_ms=120_000) for one in ids)
    ours.init_transactions(30)
    other.init_transactions(30)
    ours.begin_transaction()
    send(ours, at.topic, numbered(2))
    ours.abort_transaction(30)  # offsets 0 to 2, with its marker
    other.begin_transaction()
    send(other, at.topic, numbered(3))  # 3 to 5
    ours.begin_transaction()
    send(ours, at.topic, numbered(2))  # 6, 7
    send(other, at.topic, numbered(4))  # 8 to 11
    send(ours, at.topic, numbered(1))  # 12
    with clients.admin({"bootstrap.servers": scene.target.bootstrap}) as admin:
        told = [str(brokers.offsets_of(admin, at, one)) for one in (*ids, "nobody")]
    assert told == ["[6, 8) [12, 13)", "[3, 6) [8, 12)", "nothing"]
    ours.abort_transaction(30)
    other.abort_transaction(30)


def test_what_only_looks_answers_while_a_transaction_hides_the_ledger(own_scene: Scenario) -> None:
    scene = own_scene
    copied_once(scene)
    text = yaml.safe_dump(scene.document(timeouts={"request": 1}))
    at = At(POSITIONS, scene.key().ledger_partition)
    with left_open(scene, scene.topic, at):
        code, out, _ = ended(cli(scene, text, scene.source.bootstrap, "status", "--json"))
        document = json.loads(out)
        (row,) = document["partitions"]
        assert (code, row["watermark"]) == (1, 50), out
        for told in document["problems"]:
            assert f"transactional id {scene.topic} (none of our replications)" in told
        assert document["problems"]


@contextmanager
def unannounced(scene: Scenario) -> Iterator[None]:
    """The target's brokers take records of a transaction in partitions that its coordinator does not know."""
    scene.target.set_brokers(transaction_partition_verification_enable="false")
    try:
        yield
    finally:
        scene.target.set_brokers(transaction_partition_verification_enable="true")


def leave_open(scene: Scenario, at: At) -> None:
    """An aborted transaction of this key that is still open in this partition: its coordinator did not know of it."""
    known = f"{scene.topic}-known"
    scene.target.create(known)
    transactional_id = scene.key().transactional_id
    producer = scene.target.producer(transactional_id=transactional_id)
    producer.init_transactions(30)
    producer.begin_transaction()
    send(producer, known, numbered(1))
    config = {"bootstrap.servers": scene.target.bootstrap}
    with unannounced(scene), connect(config, at, 30) as leader:
        fetching.ask(leader, known, 0, 0, 1 << 20, 0.0, fetching.READ_UNCOMMITTED)
        [whose] = batches(memoryview(fetching.answer(leader)[0].records or b""))  # type: ignore[union-attr]
        [batch] = batches(memoryview(raw_batch([RawRecord(b"open", b"v")])))

        def refused() -> int:
            requests = transactions.ProduceRequests(transactional_id, at.topic, at.partition, 30.0)
            requests.send(leader, batch, whose.producer_id, whose.producer_epoch, 0)
            return int(transactions.produced(leader)[0].error_code)

        wait_until(lambda: not refused())  # the broker obeys a changed setting some time after the answer
    producer.abort_transaction(30)
    assert not scene.is_settled(0)


@pytest.mark.parametrize(
    "more",
    [{}, pytest.param({"partitioning": "by_key"}, marks=pytest.mark.slow)],
    ids=["keep", "by_key"],
)
def test_a_transaction_that_nobody_ends_is_told_at_once(
    own_scene: Scenario, more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends it before it copies; where that failed, a copier does not wait for it as long as a transaction lasts."""
    scene = own_scene
    scene.settings |= {"copy": {"transaction_timeout": 4}, **more}
    monkeypatch.setattr(deadline, "ATTEMPTS", 1)
    scene.target.create(scene.topic)
    copied_once(scene)
    scene.source.produce(scene.topic, numbered(20, 50))
    job = scene.copy_job()
    leave_open(scene, At(scene.topic, 0))
    result = copy_once(job)
    assert result.stop is not None and (result.stop.error_id, result.sessions) == (TargetLost.id, 1), result.error
    assert "a transaction that Kafka has ended without this partition" in str(result.error)
    assert scene.run().outcome == "done"
    assert scene.is_settled(0)
    scene.assert_copied()


def test_the_progress_names_what_a_run_waits_for(
    scene: Scenario, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "PAUSE", 0.05)
    monkeypatch.setattr(watching, "LONG", 0.0)
    caplog.set_level(logging.INFO)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    at = At(POSITIONS, scene.key().ledger_partition)
    told = f"the end of a transaction that hides {at} from "

    def progress() -> str:
        stored = next(run.progress for run in scene.store.runs(scene.name, 1))
        return str(Progress.from_json(stored or ""))

    def then(_: object) -> None:
        with left_open(scene, scene.topic, at):
            wait_until(lambda: f"transactional id {scene.topic} (" in progress())  # not the run's own transaction
            assert f"; waits for {told}" in progress()
            wait_until(lambda: any(f"waits for {told}" in line for line in caplog.messages))

    assert scene.run(InProcess(then=then)).outcome == "done"
