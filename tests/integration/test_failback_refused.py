"""Turning around where a side has lost its end, where the other direction is open, or where something is not at rest: it is
refused or waits, and no record is lost or doubled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_replication.kafka.groups import Committed
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runs import cutover, failback, failover
from stack.kafka_cluster import KafkaCluster
from tests.support.damage import forgotten
from tests.support.jobs import InProcess
from tests.support.scenario import Rec, Scenario, numbered
from tests.support.turning import WISHES, Died, commit, cut_over, died_at_the_seal, gone_back, opened, reverse, values
from tests.support.waiting import wait_until


@pytest.fixture
def back(scene: Scenario, tmp_path: Path) -> Iterator[Scenario]:
    with reverse(scene, tmp_path) as made:
        yield made


def given_up(scene: Scenario) -> None:
    failover.failover(opened(scene, "over"), WISHES, InProcess())


def opened_back(scene: Scenario, back: Scenario) -> None:
    """The other direction, and no further."""
    failback.Failback(forward=opened(scene), back=opened(back), asked=WISHES, launcher=InProcess())._open_back()


def assert_once(*sides: Scenario) -> None:
    for side in sides:
        counts = Counter(values(side.source, side.topic))
        assert set(counts.values()) == {1}, counts


def test_a_source_that_lost_its_end_and_got_other_records_there(
    own_source_scene: Scenario, own_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Its end is where it was: only the records tell."""
    scene = own_source_scene
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(60))
    with forgotten(scene, own_cluster):
        scene.source.produce(scene.topic, numbered(40, 60))
        scene.run()
        given_up(scene)
    scene.source.produce(scene.topic, numbered(40, 1000))
    scene.target.produce(scene.topic, numbered(5, 2000))
    with reverse(scene, tmp_path) as back:
        done = gone_back(scene, back)
        assert done.steps[0].state == "blocked" and "lost its end" in done.text, done.text
        assert not back.bare_run().view().positions


def test_a_target_that_lost_its_end_and_got_other_records_there(
    own_scene: Scenario, own_cluster: KafkaCluster, tmp_path: Path
) -> None:
    scene = own_scene
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(60))
    scene.run()
    with forgotten(scene, own_cluster):
        scene.source.produce(scene.topic, numbered(40, 60))
        assert not cut_over(scene).failed
    scene.target.produce(scene.topic, numbered(60, 2000))
    with reverse(scene, tmp_path) as back:
        done = gone_back(scene, back)
        assert done.steps[0].state == "blocked" and "lost its end" in done.text, done.text


def test_a_record_that_comes_just_before_the_seal_is_brought_back_before_anything_is_certified(
    scene: Scenario, back: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(5))
    scene.run()
    given_up(scene)
    scene.target.produce(scene.topic, numbered(5, 100))
    died_at_the_seal(monkeypatch, lambda: scene.target.produce(scene.topic, numbered(3, 200)))
    with pytest.raises(Died):
        gone_back(scene, back)
    assert not back.store.certificates(back.name)
    again = gone_back(scene, back, "again")
    assert "somebody wrote on target while it was sealed" in again.text and not back.store.certificates(back.name)
    assert not gone_back(scene, back, "last").failed
    scene.run()
    assert len(values(scene.source, scene.topic)) == len(values(scene.target, scene.topic)) == 13
    assert_once(scene, back)


def test_files_in_the_wrong_order_are_named(scene: Scenario, back: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(5))
    scene.run()
    given_up(scene)
    with pytest.raises(Refused, match="the two files are in the wrong order") as refused:
        failback.preview(opened(back), opened(scene), WISHES, InProcess())
    assert refused.value.remedy.endswith(f"failback {scene.name}.yaml {back.name}.yaml")


def test_a_seal_behind_which_the_other_direction_goes_on_is_not_opened_again(scene: Scenario, back: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(5))
    scene.run()
    scene.source.produce(scene.topic, numbered(3, 100))
    given_up(scene)
    opened_back(scene, back)
    with pytest.raises(Refused, match=f"{back.name} goes on behind this seal"):
        failover.undo(opened(scene, "undo"))
    assert f"{back.name} instead, which goes on behind it in the other direction" in scene.run().failed[0].remedy
    scene.target.produce(scene.topic, numbered(4, 200))
    assert not gone_back(scene, back).failed
    with pytest.raises(Refused, match=f"{scene.name} goes on behind this seal"):
        failover.undo(opened(back, "undo"))
    for _ in range(2):
        scene.run()
        back.run()
    assert_once(scene, back)


@pytest.mark.parametrize("emptied", [False, True], ids=["before the first record", "retention has emptied it"])
def test_the_other_direction_does_not_open_by_itself(scene: Scenario, back: Scenario, emptied: bool) -> None:
    """Its target is empty, but it is the source of the first direction: its records would go round."""
    scene.source.create(scene.topic)
    if emptied:
        scene.source.produce(scene.topic, numbered(5))
    scene.run()
    if emptied:
        scene.source.delete_before(scene.topic, 0, 5)
    report = back.run()
    assert "would go round for ever" in (report.failed[0].error or "") and "failback" in report.failed[0].remedy
    scene.source.produce(scene.topic, numbered(5, 100))
    scene.run()
    back.run()
    scene.run()
    assert len(values(scene.target, scene.topic)) == 5 + 5 * emptied


def test_two_commands_at_once(scene: Scenario, back: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slower one notices that the other one has come to the end."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(5))
    scene.run()
    scene.source.produce(scene.topic, numbered(3, 100))
    given_up(scene)
    scene.target.produce(scene.topic, numbered(4, 200))
    opened_back(scene, back)
    back.run()
    real = failback.Failback._open_back

    def overtaken(turning: failback.Failback) -> str:
        monkeypatch.undo()
        text = real(turning)
        assert not gone_back(scene, back, "first").failed
        scene.run()
        return text

    monkeypatch.setattr(failback.Failback, "_open_back", overtaken)
    done = gone_back(scene, back, "second")
    assert done.failed and "goes on behind this seal" in done.text, done.text
    for _ in range(2):
        scene.run()
        back.run()
    assert scene.position().sealed is None and back.position().sealed
    assert_once(scene, back)


def test_a_topic_that_was_deleted_at_the_source_is_left_out(scene: Scenario, back: Scenario) -> None:
    old = f"{scene.topic}.old"
    scene.settings["topics"] = back.settings["topics"] = {"include": [f"^{scene.topic}"]}
    for topic in (scene.topic, old):
        scene.source.create(topic)
        scene.source.produce(topic, numbered(5))
    scene.run()
    scene.source.delete(old)
    scene.run()
    cutover.preview(opened(scene), WISHES, InProcess())
    assert not (done := cut_over(scene)).failed, done.text
    scene.target.produce(scene.topic, numbered(4, 200))
    assert not (done := gone_back(scene, back)).failed, done.text
    assert_once(scene)


def test_a_group_whose_commit_is_in_an_open_transaction_is_waited_for(scene: Scenario) -> None:
    scene.settings["groups"] = {"include": [f"^{scene.name}"]}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    scene.run()
    group, at = f"{scene.name}-g", TopicPartition(scene.topic, 0)
    commit(scene.source.admin, group, {at: Committed(4)})
    producer = scene.source.transactional(timeout=600)
    consumer = Consumer({"bootstrap.servers": scene.source.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([scene.topic])
    wait_until(lambda: bool(consumer.poll(0.1) or consumer.assignment()))
    producer.begin_transaction()
    place = ClientPartition(scene.topic, 0, 7)
    producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 30)
    consumer.close()
    done = cut_over(scene)
    assert done.failed and "an open transaction is about to commit its offset" in done.text, done.text
    producer.abort_transaction(30)
    assert not (done := cut_over(scene)).failed, done.text
    assert done.groups[0].partitions[0].place == 4


def test_what_a_compacted_topic_has_beyond_is_to_be_set_aside(scene: Scenario, back: Scenario) -> None:
    """Else the newest record of a key would be another one on each side. A pattern may not bring it back."""
    scene.source.create(scene.topic, config={"cleanup.policy": "compact"})
    scene.source.produce(scene.topic, [Rec(b"k", b"1")])
    scene.run()
    scene.source.produce(scene.topic, [Rec(b"k", b"2")])
    given_up(scene)
    scene.target.produce(scene.topic, [Rec(b"k", b"3")])
    assert "--surplus-aside" in gone_back(scene, back).text
    back.settings["topics"] = {"include": [f"^{scene.topic}"]}
    wishes = replace(WISHES, aside=True)
    done = failback.failback(opened(scene), opened(back), wishes, InProcess())
    assert "topics.exclude" in done.text
    back.settings["topics"] = {"include": [scene.topic]}
    done = failback.failback(opened(scene), opened(back), wishes, InProcess())
    assert not done.failed, done.text
    scene.run()
    assert values(scene.source, scene.topic)[-1] == values(scene.target, scene.topic)[-1] == b"3"


def test_runs_of_few_records_are_not_taken_for_producers(scene: Scenario) -> None:
    scene.settings["max_records_per_run"] = 2
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    assert not (done := cut_over(scene)).failed, done.text


def test_a_producer_at_the_source_that_was_not_stopped(scene: Scenario, back: Scenario) -> None:
    """Its record stands between those that came back. The way out that the docs name: the other direction is sealed, and
    turned around by itself.
    """
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(5))
    scene.run()
    given_up(scene)
    scene.target.produce(scene.topic, numbered(4, 200))
    opened_back(scene, back)
    back.run()
    scene.source.produce(scene.topic, numbered(1, 300))
    scene.target.produce(scene.topic, numbered(4, 210))
    assert "copied: " in (done := gone_back(scene, back)).text and done.failed
    failover.failover(opened(back, "over back"), WISHES, InProcess())
    assert "was sealed by failover" in gone_back(scene, back).text, "a person has decided so"
    done = failback.failback(opened(back, "swapped"), opened(scene, "swapped"), WISHES, InProcess())
    assert not done.failed, done.text
    assert not (done := gone_back(scene, back, "again")).failed, done.text
    scene.run()
    assert_once(scene, back)
    assert set(values(scene.source, scene.topic)) == set(values(scene.target, scene.topic))
