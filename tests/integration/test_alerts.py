"""Alerts arrive by mail and by webhook: one for each cause, and one when it is healed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from kafka_replication.alerting.open_causes import Decision
from kafka_replication.alerting.telling import Links
from kafka_replication.ledger.entries import RECEIPTS
from kafka_replication.model.errors import Refused, ReplicationError, TlsFailed, Unreachable
from kafka_replication.runs.run import Request
from kafka_replication.runs.watching import FailedRun, Orchestrator, Watcher
from kafka_replication.runtime import deadline
from kafka_replication.store.watermark_store import WatermarkStore
from stack.kafka_cluster import KafkaCluster
from tests.support.actions import copied_once
from tests.support.clusters import Brokers, started
from tests.support.command_line import command
from tests.support.jobs import InProcess
from tests.support.leases import acquire
from tests.support.received import Inbox
from tests.support.scenario import Cluster, Rec, Scenario, numbered
from tests.support.waiting import wait_until
from tests.support.watching import events, watcher


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[KafkaCluster]:
    """A broker that knows rights."""
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    cluster = KafkaCluster("guarded", tmp_path, extra=authorizer)
    with started(cluster):
        yield cluster


def lose(scene: Scenario, *partitions: int) -> None:
    """Delete source records that were not copied yet."""
    for partition in partitions:
        scene.source.produce(scene.topic, numbered(20, 50), partition)
        scene.source.delete_before(scene.topic, partition, 60)


def test_a_dozen_partitions_with_a_gap_are_one_alert_by_mail_and_webhook(scene: Scenario, received: Inbox) -> None:
    copied_once(scene, partitions=12)
    watching = watcher(scene, received)
    assert watching.look() == Decision()
    lose(scene, *range(12))
    assert events(watching.look()) == [f"opened gap {scene.topic}"]
    assert watching.look().alerts == ()
    assert scene.run().outcome == "failed"
    assert watching.look().alerts == ()  # the gap explains the failed run
    for told in (received.mails, received.posts):
        [alert] = told
        assert scene.name in alert.title and scene.topic in alert.title
        assert f"{scene.topic}-0 at 50" in alert.text and "and 2 others" in alert.text
        assert "approve-gap" in alert.text and "since 20" in alert.text


def test_a_failed_run_is_told_with_what_it_says_and_healed_by_the_next_one(scene: Scenario, received: Inbox) -> None:
    copied_once(scene)
    watching = watcher(scene, received)
    failed = Refused("nobody answers", "wake them")
    assert events(watching.tell(failed, "cli-1")) == ["opened run-failed"]
    assert watching.look().alerts == ()  # the store knows nothing of a run that was not planned
    [alert] = received.mails
    assert all(text in alert.text for text in ("cli-1", "nobody answers", "wake them"))
    scene.run()
    assert events(watching.look()) == ["healed run-failed"]
    assert [mail.title.split()[0] for mail in received.mails] == ["ALERT", "OVER"]
    assert [post.type for post in received.posts] == ["failure", "success"]


def test_a_run_that_died_is_told_once_its_lease_is_gone(scene: Scenario, received: Inbox) -> None:
    copied_once(scene)
    watching = watcher(scene, received)
    plan = scene.store.runs(scene.name)[0].plan
    scene.store.start_run("cli-2", scene.name, "live", plan)
    lease = acquire(scene.store, scene.name, "cli-2", "command", 60)
    assert watching.look().alerts == ()
    scene.store.release_lease(lease)
    assert events(watching.look()) == ["opened run-died"]
    assert "cli-2" in received.posts[0].text
    scene.idle_run()
    assert events(watching.look()) == ["healed run-died"]


def test_a_run_without_progress_is_told_while_it_goes_on(scene: Scenario, received: Inbox) -> None:
    copied_once(scene)
    plan = scene.store.runs(scene.name)[0].plan
    scene.store.start_run("cli-3", scene.name, "live", plan)
    acquire(scene.store, scene.name, "cli-3", "command", 60)
    standing = {"ranges": 2, "ranges_done": 1, "offsets": 10, "offsets_done": 5}
    for moved, told in (("2099-01-01T00:00:00Z", []), ("2020-01-01T00:00:00Z", ["opened run-stalled"])):
        progress = {**standing, "slowest": "orders-7", "slowest_percent": 12, "at": moved, "moved": moved}
        scene.store.record_progress("cli-3", json.dumps(progress))
        assert events(watcher(scene, received).look()) == told
    assert "orders-7 (12%)" in received.mails[0].text


def test_lag_in_records_and_in_seconds(scene: Scenario, received: Inbox) -> None:
    copied_once(scene)
    scene.source.produce(scene.topic, numbered(10, 50))  # with timestamps of 2023
    by_records = watcher(scene, received, alerts={"lag": {"records": 10}})
    assert by_records.look().alerts == ()
    scene.source.produce(scene.topic, numbered(1, 60))
    assert events(by_records.look()) == ["opened lag"]
    assert "11 offsets behind" in received.mails[0].text
    scene.run()
    assert events(by_records.look()) == ["healed lag"]
    scene.source.produce(scene.topic, numbered(1, 61))
    assert events(watcher(scene, received, alerts={"lag": {"seconds": 3600}}).look()) == ["opened lag"]


def test_a_missed_schedule_is_told(scene: Scenario, received: Inbox) -> None:
    copied_once(scene)
    assert watcher(scene, received, schedule="0 0 1 1 *").look().alerts == ()
    missed = watcher(scene, received, schedule="* * * * * *", alerts={"stalled_after": 1})
    told: list[str] = []
    while not told:  # the schedule is due every second, and no run starts
        told = events(missed.look())
    assert told == ["opened schedule-missed"]


def test_a_cluster_that_is_away_is_told_after_a_while(scene: Scenario, received: Inbox) -> None:
    copied_once(scene)
    watching = watcher(scene, received, timeouts={"request": 2}, alerts={"stalled_after": 1})
    away = replace(watching, connections=replace(scene.connections, target="127.0.0.1:9", alerts=received.addresses))
    assert away.look().alerts == ()
    assert events(away.look()) == ["opened cluster-unavailable"]  # the first look took longer than a second
    assert "target 127.0.0.1:9 (connection 'target')" in received.mails[0].text
    assert events(watching.look()) == ["healed cluster-unavailable"]


@pytest.mark.slow
def test_a_ledger_that_takes_nothing_has_an_alert_of_its_own(
    source_cluster: Brokers,
    target3: KafkaCluster,
    received: Inbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scenario(Cluster(source_cluster.bootstrap), Cluster(target3.bootstrap), tmp_path)
    copied_once(scene)
    scene.source.produce(scene.topic, numbered(10, 50))
    watching = watcher(scene, received, alerts={"stalled_after": 1})
    scene.target.set(RECEIPTS, min_insync_replicas="3")
    target3.broker(2).kill()
    try:
        told: list[str] = []
        while not told:
            told = events(watching.look())
        quick = {"transaction_timeout": 10, "stall_timeout": 3}
        with monkeypatch.context() as impatience:
            impatience.setattr(deadline, "ATTEMPTS", 1)
            assert scene.run(copy=quick, timeouts={"request": 2}).outcome == "failed"
        told += events(watching.look())
    finally:
        target3.broker(2).start()
        scene.target.set(RECEIPTS, min_insync_replicas="2")
    assert told == ["opened ledger-not-writable"]
    assert RECEIPTS in received.mails[0].text and "min.insync.replicas is 3" in received.mails[0].text
    assert events(watching.look()) == []  # the failed run is a part of it
    assert scene.run().outcome == "done"
    assert events(watching.look()) == ["healed ledger-not-writable"]
    scene.assert_copied()
    scene.store.close()


@pytest.mark.slow
def test_a_right_that_is_missing_in_the_ledger_is_told_at_once(
    guarded: KafkaCluster, source_cluster: Brokers, received: Inbox, tmp_path: Path
) -> None:
    scene = Scenario(Cluster(source_cluster.bootstrap), Cluster(guarded.bootstrap), tmp_path)
    copied_once(scene)
    watching = watcher(scene, received)
    acl = partial(AclBinding, ResourceType.TOPIC, RECEIPTS, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
    allow, deny = acl(AclOperation.ALL, AclPermissionType.ALLOW), acl(AclOperation.WRITE, AclPermissionType.DENY)
    for future in scene.target.admin.create_acls([allow, deny]).values():
        future.result(30)
    told: list[str] = []
    while not told:  # the brokers learn of it a moment later
        told = events(watching.look())
    assert told == ["opened ledger-not-writable"]
    assert f"Write on topic {RECEIPTS} is missing" in received.posts[0].text
    assert "kafka-acls.sh" in received.posts[0].text
    scene.store.close()


def test_two_that_look_at_once_send_one_message(scene: Scenario, received: Inbox) -> None:
    """As a task and `watch` may: each with a connection to the store of its own."""
    copied_once(scene)
    lose(scene, 0)
    with ThreadPoolExecutor(4) as pool:
        decisions = pool.map(Watcher.look, [watcher(scene, received)] * 4)
    told = [event for decision in decisions for event in events(decision)]
    assert told == [f"opened gap {scene.topic}"]
    assert len(received.mails) == len(received.posts) == 1


def test_a_store_that_is_away_is_remembered_by_the_process(scene: Scenario, received: Inbox) -> None:
    copied_once(scene)
    watching = watcher(scene, received, alerts={"stalled_after": 1})

    def gone() -> WatermarkStore:
        raise Unreachable("the store does not answer", "start it")

    away = replace(watching, open_store=gone)
    told: list[str] = []
    while not told:
        told = events(away.look())
    assert told == ["opened store-unavailable"]
    assert away.look().alerts == ()
    with pytest.raises(Unreachable):  # each look of Airflow's is a process of its own, and would tell it again
        replace(away, lasts=False).look()
    assert events(watching.look()) == ["healed store-unavailable"]
    assert watching.look().alerts == ()


def test_an_alert_that_nobody_took_is_sent_again(scene: Scenario, received: Inbox) -> None:
    copied_once(scene)
    lose(scene, 0)
    watching = watcher(scene, received)
    deaf = replace(watching, connections=replace(scene.connections, alerts=("json://127.0.0.1:9/",)))
    assert events(deaf.look()) == [f"opened gap {scene.topic}"]
    [row] = scene.store.open_causes(scene.name)
    assert row.announced_at is None
    assert events(watching.look()) == [f"opened gap {scene.topic}"]
    assert len(received.mails) == 1


def test_a_dead_address_of_a_connection_does_not_make_the_others_ring_again(scene: Scenario, received: Inbox) -> None:
    copied_once(scene)
    lose(scene, 0)
    both = replace(scene.connections, alerts=("json://127.0.0.1:9/", received.webhook))
    watching = replace(watcher(scene, received), connections=both)
    assert events(watching.look()) == [f"opened gap {scene.topic}"]
    [row] = scene.store.open_causes(scene.name)
    assert row.announced_at is not None  # else it would be sent again
    assert watching.look().alerts == ()
    assert len(received.posts) == 1


def test_a_failing_command_tells_and_a_good_one_heals(scene: Scenario, received: Inbox) -> None:
    """From the command line alone, with the connection from the environment."""
    scene.settings |= {"alerts": {"apprise": "oncall"}}
    environment = {"AIRFLOW_CONN_ONCALL": received.connection}
    code, _, _ = command(scene, "run", **environment)
    assert code == 1  # there is no such topic
    scene.source.create(scene.topic)
    code, out, _ = command(scene, "watch", "--once", "--json", **environment)
    assert code == 1
    [watched] = json.loads(out)["replications"]
    assert ([row["kind"] for row in watched["open"]], watched["sent"]) == (["run-failed"], [])
    code, _, err = command(scene, "run", **environment)
    assert code == 0, err
    assert [mail.title.split()[0] for mail in received.mails] == ["ALERT", "OVER"]
    assert [post.title for post in received.posts] == [mail.title for mail in received.mails]
    assert command(scene, "watch", "--once", **environment)[0] == 0


def test_status_says_with_its_exit_code_that_something_is_wrong(scene: Scenario) -> None:
    scene.settings |= {"alerts": {"lag": {"records": 5}}}
    copied_once(scene)
    code, out, _ = command(scene, "status", "--json")
    assert (code, json.loads(out)["problems"], json.loads(out)["partitions"][0]["lag_seconds"]) == (0, [], 0)
    scene.source.produce(scene.topic, numbered(10, 50))
    code, out, _ = command(scene, "status", "--json")
    [row] = json.loads(out)["partitions"]
    assert (code, row["lag"]) == (1, 10)
    assert row["lag_seconds"] > 86_400  # the records are of 2023
    assert len(json.loads(out)["problems"]) == 1


def test_a_failed_run_in_this_process(scene: Scenario, received: Inbox) -> None:
    """A run that fails for some partitions only is told by the topic, with ranges and errors."""
    copied_once(scene)
    scene.target.set(scene.topic, max_message_bytes="1000")
    scene.source.produce(scene.topic, [Rec(b"large", os.urandom(5_000), (), 1_700_000_000_000)])
    try:
        scene.run(InProcess(), Request())
    except ReplicationError:
        pytest.fail("the run itself must not fail")
    assert events(watcher(scene, received).look()) == [f"opened run-failed {scene.topic}"]
    assert f"{scene.topic}-0 [50, 51)" in received.mails[0].text


def airflow(*, is_paused: bool = False, failed: FailedRun | None = None) -> Orchestrator:
    """What Airflow's watch knows of runs."""
    return Orchestrator(
        state=lambda run_id: "running",
        paused=lambda: is_paused,
        newest_failed=lambda: failed,
        links=Links(lambda run_id: f"http://airflow/{run_id}", "http://airflow/page"),
    )


def test_the_command_line_leaves_runs_to_airflows_watch(scene: Scenario, received: Inbox) -> None:
    """Airflow knows that the run only waits for its turn: two opinions would open and heal the alert for ever."""
    copied_once(scene)
    scene.store.start_run("airflow-x-1", scene.name, "live", scene.store.runs(scene.name)[0].plan)
    terminal = watcher(scene, received, alerts={"stalled_after": 3600})
    inside = replace(terminal, orchestrator=airflow())
    assert inside.look().open == ()
    assert terminal.look().open == ()
    alone = watcher(scene, received)
    assert alone.look().open == ()


def test_a_paused_schedule_is_not_missed(scene: Scenario, received: Inbox) -> None:
    copied_once(scene)
    every_second = watcher(scene, received, schedule="* * * * * *", alerts={"stalled_after": 1})
    inside = replace(every_second, orchestrator=airflow(is_paused=True))
    wait_until(lambda: datetime.now(UTC) - scene.store.runs(scene.name)[0].created_at > timedelta(seconds=3))
    assert inside.look().open == ()
    assert [str(row.key) for row in replace(inside, orchestrator=airflow()).look().open] == ["schedule-missed"]


def test_a_run_that_failed_before_it_had_a_plan(scene: Scenario, received: Inbox) -> None:
    copied_once(scene)
    now = datetime.now(UTC)
    lost = FailedRun(run_id="airflow-x-2", began_at=now, ended_at=now)
    inside = replace(watcher(scene, received), orchestrator=airflow(failed=lost))
    assert events(inside.look()) == ["opened run-failed"]
    assert "airflow-x-2" in received.mails[0].text
    assert inside.look().alerts == ()
    scene.idle_run()
    assert events(replace(inside, orchestrator=airflow()).look()) == ["healed run-failed"]


def test_a_run_that_failed_in_airflow_is_forgotten_after_a_good_one_elsewhere(scene: Scenario, received: Inbox) -> None:
    """Airflow shows its own run as failed for ever."""
    now = datetime.now(UTC)
    lost = FailedRun(run_id="airflow-x-2", began_at=now - timedelta(hours=1), ended_at=now - timedelta(minutes=59))
    copied_once(scene)
    inside = replace(watcher(scene, received), orchestrator=airflow(failed=lost))
    assert inside.look().open == ()


def test_a_cluster_that_does_not_let_this_client_in_is_told_as_that(scene: Scenario, received: Inbox) -> None:
    """By a run that fails of it, and by a look."""
    copied_once(scene)
    watching = watcher(scene, received, timeouts={"request": 5})
    scene.client["security.protocol"] = "ssl"
    with_tls = replace(watching, connections=replace(scene.connections, alerts=received.addresses))
    assert events(with_tls.tell(TlsFailed("source speaks no TLS", "correct it"), "cli-1")) == ["opened not-admitted"]
    assert with_tls.look().alerts == ()
    [mail] = received.mails
    assert mail.title == f"ALERT {scene.name}: a cluster does not let this client in"
    del scene.client["security.protocol"]
    scene.idle_run()
    assert events(watching.look()) == ["healed not-admitted"]
