"""Alerts about records in quarantine and about the lag; and each way to tell counts for itself."""

from __future__ import annotations

from dataclasses import replace

from kafka_replication.alerting.telling import AppriseChannel
from kafka_replication.model.choices import Action
from tests.support.actions import approve, copied_once
from tests.support.failed import ask
from tests.support.leases import acquire
from tests.support.received import Inbox
from tests.support.scenario import Rec, Scenario, numbered
from tests.support.watching import events, watcher


def test_quarantined_records_are_one_alert_until_all_of_them_are_decided(
    with_failures: Scenario, received: Inbox
) -> None:
    scene = with_failures
    watching = watcher(scene, received)
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


def test_records_that_the_file_says_to_skip_alert_nobody(scene: Scenario, received: Inbox) -> None:
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"cleanup.policy": "compact"})
    scene.source.produce(scene.topic, [*numbered(3), Rec(None, b"no key")])
    scene.settings |= {"failures": {"policy": "skip"}}
    assert scene.run().outcome == "done"
    assert watcher(scene, received).look().open == ()


def test_a_first_run_that_copies_is_not_behind(scene: Scenario, received: Inbox) -> None:
    """All there is to copy is what it is at work on; the limit is for what comes after it."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    limited = watcher(scene, received, alerts={"lag": {"records": 10}})
    assert limited.look().open == ()
    scene.store.start_run("cli-1", scene.name, "live", "{}")
    acquire(scene.store, scene.name, "cli-1", "command", 60)
    assert limited.look().open == ()
    scene.store.finish_run("cli-1", "done")
    assert events(limited.look()) == ["opened lag"]


def test_a_pager_that_was_dead_gets_the_alert_once_and_the_mail_gets_it_once(scene: Scenario, received: Inbox) -> None:
    copied_once(scene)
    scene.source.produce(scene.topic, numbered(20, 50))
    scene.source.delete_before(scene.topic, 0, 60)
    by_mail = watcher(scene, received)
    by_mail = replace(by_mail, connections=replace(scene.connections, alerts=(received.mail,)))
    dead = replace(by_mail, more=(AppriseChannel("pager", lambda: ("json://127.0.0.1:9/",)),))
    alive = replace(by_mail, more=(AppriseChannel("pager", lambda: (received.webhook,)),))

    def told() -> tuple[list[str], list[str]]:
        return [mail.title.split()[0] for mail in received.mails], [post.title.split()[0] for post in received.posts]

    opened = [f"opened gap {scene.topic}"]
    assert (events(dead.look()), events(dead.look()), told()) == (opened, opened, (["ALERT"], []))
    assert (events(alive.look()), events(alive.look()), told()) == (opened, [], (["ALERT"], ["ALERT"]))
    approve(scene, 50, 60)
    healed = [f"healed gap {scene.topic}"]
    assert (events(dead.look()), events(dead.look()), told()) == (healed, healed, (["ALERT", "OVER"], ["ALERT"]))
    assert (events(alive.look()), events(alive.look())) == (healed, [])
    assert told() == (["ALERT", "OVER"], ["ALERT", "OVER"])
    assert scene.store.open_causes(scene.name) == []
