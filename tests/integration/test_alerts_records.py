"""Records that wait in quarantine are told to people until somebody has decided about them."""

from __future__ import annotations

from pathlib import Path

from kafka_replication.runs.failed.handling import Action
from tests.support.failed import ask
from tests.support.received import Inbox
from tests.support.scenario import Rec, Scenario, numbered
from tests.support.watching import events, watcher


def test_quarantined_records_are_one_alert_until_all_of_them_are_decided(
    with_failures: Scenario, received: Inbox, tmp_path: Path
) -> None:
    scene = with_failures
    watching = watcher(scene, received, tmp_path)
    assert events(watching.look()) == [f"opened quarantined {scene.topic}"]
    [post] = received.posts
    assert "4 records" in post.text and f"{scene.topic}-0: 4" in post.text
    assert "kafka-replication failed" in post.text
    assert len(ask(scene, Action.DISCARD, until=8)) == 1
    assert watching.look().alerts == ()
    scene.target.set(scene.topic, cleanup_policy="delete")
    assert len(ask(scene, Action.RETRY, everything=True)) == 3
    assert events(watching.look()) == [f"healed quarantined {scene.topic}"]
    assert len(received.posts) == len(received.mails) == 2


def test_records_that_the_file_says_to_skip_alert_nobody(scene: Scenario, received: Inbox, tmp_path: Path) -> None:
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"cleanup.policy": "compact"})
    scene.source.produce(scene.topic, [*numbered(3), Rec(None, b"no key")])
    scene.settings |= {"failures": {"policy": "skip"}}
    assert scene.run().outcome == "done"
    assert watcher(scene, received, tmp_path).look().open == ()
