"""A target topic whose source gets other settings, on real brokers."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from kafka_replication.kafka.topics import describe_all
from kafka_replication.model.trouble import Trouble
from kafka_replication.reporting.status import status_table
from kafka_replication.runs import checking
from kafka_replication.runs.reporting import standing
from kafka_replication.runs.run import open_run
from tests.support.intervals import at, interval
from tests.support.intervals import copied as copied_by
from tests.support.jobs import no_launch
from tests.support.scenario import Cluster, Scenario, numbered

APPLY = {"follow": "apply"}


def setting(cluster: Cluster, topic: str, name: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return str(cluster.admin.describe_configs([resource])[resource].result(30)[name].value)


def differing(scene: Scenario, **settings: Any) -> list[Trouble]:
    replication = scene.replication(target_topics=settings)
    run = open_run(replication, scene.connections, scene.store, "check")
    return [found for found in checking.check(run).findings if "do not follow the source" in found.what]


@pytest.fixture
def copied(scene: Scenario) -> Scenario:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    assert scene.run().outcome == "done"
    return scene


def test_settings_are_reported_and_followed_only_if_asked(copied: Scenario) -> None:
    assert describe_all(copied.source.admin, [copied.topic])[copied.topic].own == {"retention.ms"}, "no defaults"
    assert differing(copied) == []
    copied.source.set(copied.topic, flush_messages="500", max_message_bytes="2000000")
    (found,) = differing(copied)
    assert "flush.messages is" in found.what and "should be 500" in found.what and found.severity == "warning"
    assert differing(copied, follow="off") == []
    (row,) = standing(copied.bare_run())
    assert any("flush.messages is" in text for text in row.settings)
    assert f"SETTINGS {copied.topic} -> {copied.topic}: " in status_table([row])
    copied.idle_run()
    assert setting(copied.target, copied.topic, "flush.messages") != "500", "a report changes nothing"
    report = copied.run(no_launch, target_topics=APPLY)
    assert report.outcome == "done"
    assert [note for note in report.notes if "set flush.messages from" in note and copied.topic in note], report.notes
    assert setting(copied.target, copied.topic, "flush.messages") == "500"
    assert setting(copied.target, copied.topic, "max.message.bytes") == "2000000"
    assert differing(copied) == []
    assert copied.idle_run(target_topics=APPLY).notes == (), "nothing is left to do"


def test_a_setting_that_the_target_refuses_is_named_and_hinders_no_other(copied: Scenario) -> None:
    copied.source.set(copied.topic, flush_messages="500")
    copied.source.produce(copied.topic, numbered(5, first=20))
    report = copied.run(target_topics=APPLY | {"config": {"compression.type": "no-such-codec", "flush.ms": "700"}})
    assert report.outcome == "done", report.table()
    (refused,) = [note for note in report.notes if "was not set" in note]
    assert "compression.type" in refused and copied.topic in refused and "target_topics.config" in refused
    assert setting(copied.target, copied.topic, "flush.messages") == "500"
    assert setting(copied.target, copied.topic, "flush.ms") == "700"
    copied.assert_copied()


def test_compaction_waits_until_nothing_is_left_to_copy(copied: Scenario) -> None:
    copied.source.produce(copied.topic, numbered(5, first=20))
    copied.source.set(copied.topic, cleanup_policy="compact")
    report = copied.run(target_topics=APPLY)
    assert report.outcome == "done" and any("finds nothing left to do" in note for note in report.notes), report.notes
    assert setting(copied.target, copied.topic, "cleanup.policy") == "delete"
    assert copied.run(no_launch, target_topics=APPLY).outcome == "done"
    assert setting(copied.target, copied.topic, "cleanup.policy") == "compact"
    assert int(setting(copied.target, copied.topic, "segment.ms")) > 10**12


def test_overrides_count_for_a_new_target_and_for_one_that_is_there(copied: Scenario) -> None:
    other = f"{copied.name}.other"
    copied.source.create(other)
    overrides = {f"^{copied.name}": {"flush.ms": "700"}, other: {"flush.ms": "900"}}
    chosen: dict[str, Any] = {"topics": {"include": [copied.topic, other]}}
    assert copied.run(**chosen, target_topics={"follow": "off", "overrides": overrides}).outcome == "nothing_to_do"
    assert setting(copied.target, other, "flush.ms") == "900"
    assert copied.run(**chosen, target_topics=APPLY | {"overrides": overrides}).outcome == "done"
    assert [setting(copied.target, topic, "flush.ms") for topic in (copied.topic, other)] == ["700", "900"]


def test_a_data_interval_follows_too_and_a_new_policy_waits_for_later_intervals(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [at(0.1), at(2.5)])
    assert copied_by(interval(scene, 0)) == 1
    scene.source.set(scene.topic, flush_messages="500", cleanup_policy="compact")
    scene.settings |= {"target_topics": APPLY}
    assert any("finds nothing left to do" in note for note in interval(scene, 1).notes)
    assert setting(scene.target, scene.topic, "flush.messages") == "500"
    assert setting(scene.target, scene.topic, "cleanup.policy") == "delete"


def test_the_topic_of_somebody_else_is_not_changed(scene: Scenario) -> None:
    scene.source.create(scene.topic, config={"flush.messages": "500"})
    scene.target.create(scene.topic)
    scene.target.produce(scene.topic, numbered(3))
    assert scene.run(target_topics=APPLY).outcome == "failed", "it has records of others"
    assert setting(scene.target, scene.topic, "flush.messages") != "500"
