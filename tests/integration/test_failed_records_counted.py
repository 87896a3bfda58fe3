"""What commands about failed records ask the ledger, and how often they fence."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.kafka.quarantine import TargetLimits
from kafka_replication.kafka.session import KafkaSession
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.model.choices import Action
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.runs import retry_discard
from tests.support.audits import audit
from tests.support.failed import QUARANTINE, ask, assert_each_once
from tests.support.scenario import Rec, Scenario, numbered


def two_topics(scene: Scenario) -> tuple[str, str]:
    """In both the second of two partitions has set a record aside."""
    topics = (scene.topic, f"{scene.name}.other")
    for topic in topics:
        scene.source.create(topic, 2)
        scene.target.create(topic, 2, {"cleanup.policy": "compact"})
        scene.source.produce(topic, numbered(3), 0)
        scene.source.produce(topic, [Rec(None, b"no key")], 1)
    scene.settings |= {"failures": QUARANTINE, "topics": {"include": list(topics)}}
    assert scene.run().outcome == "done"
    return topics


def test_only_the_receipts_of_what_is_asked_for_are_read(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked, and by one reading."""
    topic, other = two_topics(scene)
    scene.target.set(topic, cleanup_policy="delete")
    readings, read = list[list[str]](), KafkaLedger.receipts

    def noted(self: KafkaLedger, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        readings.append([str(key.source) for key in wanted])
        return read(self, wanted)

    monkeypatch.setattr(KafkaLedger, "receipts", noted)
    assert ask(scene, Action.LIST, topic="another") == []
    assert len(ask(scene, Action.LIST, topic=topic)) == 1
    assert len(ask(scene, Action.SHOW, topic=other, partition=1)) == 1
    assert [row["done"] for row in ask(scene, Action.RETRY, topic=topic)] == [True]
    assert [row["done"] for row in ask(scene, Action.DISCARD, topic=other, partition=1)] == [True]
    of_topic, of_partition = [f"{topic}-0", f"{topic}-1"], [f"{other}-1"]
    assert [sorted(names) for names in readings] == [[], of_topic, of_partition, of_topic, of_partition]


def count_steps(monkeypatch: pytest.MonkeyPatch, *methods: tuple[object, str]) -> list[str]:
    """The names of these methods, each time one is called."""
    called = list[str]()
    for owner, name in methods:
        real = getattr(owner, name)

        def noting(self: object, *args: Any, _name: str = name, _real: Any = real, **named: Any) -> Any:
            called.append(_name)
            return _real(self, *args, **named)

        monkeypatch.setattr(owner, name, noting)
    return called


STEPS = (
    (KafkaSession, "fence"),
    (KafkaLedger, "view"),
    (KafkaLedger, "position"),
    (KafkaLedger, "receipts"),
    (retry_discard, "apply"),
)


def test_a_retry_fences_once_and_reads_the_ledger_once_after_that(
    with_failures: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many transactions it takes; the next run finds all of them."""
    scene = with_failures
    scene.target.set(scene.topic, cleanup_policy="delete")
    monkeypatch.setattr(retry_discard, "MOST_RECORDS", 2)
    with monkeypatch.context() as counting:
        called = count_steps(counting, *STEPS)
        assert all(row["done"] for row in ask(scene, Action.RETRY, everything=True))
    assert called == ["view", "receipts", "view", "fence", "view", "apply", "apply"]
    assert_each_once(scene)
    scene.source.produce(scene.topic, numbered(5, 60))
    assert scene.run().outcome == "done"
    audited = audit(scene.bare_run())
    assert (audited.outcome, audited.partitions[0].retried) == ("clean", 4), audited.text()


def test_what_only_the_broker_refuses_is_left_by_a_further_session(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one had to abort. The second one looks again, and copies the rest."""
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"cleanup.policy": "compact", "max.message.bytes": "100000"})
    large = Rec(None, os.urandom(150_000))
    scene.source.produce(scene.topic, [*numbered(3), Rec(None, b"3"), large, Rec(None, b"5"), *numbered(3, 6)])
    scene.settings |= {"failures": QUARANTINE}
    assert scene.run().outcome == "done"
    scene.target.set(scene.topic, cleanup_policy="delete")
    monkeypatch.setattr(TargetLimits, "refusal", lambda *_: None)
    with monkeypatch.context() as counting:
        called = count_steps(counting, *STEPS)
        done = {row["offset"]: row["why"] for row in ask(scene, Action.RETRY, everything=True)}
    assert (done[3], done[5]) == (None, None) and "max.message.bytes" in done[4], done
    assert called == ["view", "receipts", "view", "fence", "view", "fence", "view", "apply"]
    assert_each_once(scene, [4])
    scene.target.set(scene.topic, max_message_bytes="1000000")
    assert [row["done"] for row in ask(scene, Action.RETRY, everything=True)] == [True]
    assert_each_once(scene)
    audited = audit(scene.bare_run())
    assert audited.outcome == "clean", audited.text()
