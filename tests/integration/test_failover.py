"""The source is given up: the direction is sealed, what was copied is verified, groups go on at the target; and the way back."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kafka_replication.alerting.open_causes import Decision, Kind
from kafka_replication.kafka import groups as kafka_groups
from kafka_replication.kafka.groups import Committed
from kafka_replication.ledger.account import Change
from kafka_replication.ledger.writing import apply
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.overview.rows import State, facts_of, rows
from kafka_replication.reporting.failover import FailoverDocument, FailoverRow
from kafka_replication.runs import failover, groups, sealing
from kafka_replication.runs.reporting import standing
from kafka_replication.runs.reset import reset_topic
from kafka_replication.runs.run import open_run
from kafka_replication.runs.sealing import Asked
from kafka_replication.watermarks.sight import Lag
from stack.ports import LOOPBACK, free_ports
from tests.support.actions import copied_once
from tests.support.checker import read
from tests.support.children import run_process
from tests.support.command_line import command
from tests.support.jobs import InProcess, copy_once
from tests.support.received import Inbox
from tests.support.scenario import Cluster, Scenario, numbered
from tests.support.waiting import wait_until
from tests.support.watching import watcher

ASKED = Asked(by="ann", reason="the data centre is on fire")


def looked(scene: Scenario) -> None:
    """Somebody looks at the replication, as the watch of Airflow and of the terminal does."""
    rows = standing(scene.bare_run("watch"))
    scene.store.record_standing(scene.name, facts_of(scene.replication()), Lag(), rows)


def kill_source(scene: Scenario) -> Cluster:
    """The source does not answer any more. Returns it."""
    was, scene.source = scene.source, Cluster(f"{LOOPBACK}:{free_ports(1)[0]}")
    return was


def given_up(scene: Scenario) -> FailoverDocument:
    run = open_run(scene.replication(), scene.connections, scene.store, "over")
    return failover.failover(run, ASKED, InProcess())


def preview(scene: Scenario) -> FailoverDocument:
    return failover.preview(open_run(scene.replication(), scene.connections, scene.store, "look"))


def row_of(document: FailoverDocument, partition: int = 0) -> FailoverRow:
    return next(row for row in document.partitions if row.partition == partition)


class Died(Exception):
    pass


def die() -> None:
    raise Died


def test_the_source_is_gone(scene: Scenario) -> None:
    """Verified, copied and not verified, never copied: each is told; and the group goes on where that is proved."""
    scene.settings["groups"] = {"include": [f"^{scene.name}"]}
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(100))
    group, at = f"{scene.name}-billing", TopicPartition(scene.topic, 0)
    kafka_groups.commit(scene.source.admin, group, {at: Committed(60)})
    assert scene.run().outcome == "done"
    scene.source.produce(scene.topic, numbered(30, 100))
    with pytest.raises(Died):
        scene.run(InProcess(between=die))
    scene.source.produce(scene.topic, numbered(7, 130))
    kafka_groups.commit(scene.source.admin, group, {at: Committed(120)})
    groups.move(scene.bare_run("groups"), apply=True)
    looked(scene)
    kill_source(scene)

    dry = preview(scene)
    row = row_of(dry)
    assert (row.verified_until, row.not_verified, row.beyond, row.seal) == (100, 30, 7, None)
    assert dry.state == "can be sealed" and dry.groups[0].again == 20
    assert scene.position().sealed is None, "a dry run changes nothing"

    done = given_up(scene)
    row = row_of(done)
    assert (row.verified_until, row.not_verified, row.beyond) == (130, 0, 7) and row.seal
    assert (row.seal.by, row.seal.reason, row.seal.target_until) == (ASKED.by, ASKED.reason, row.target_until)
    assert not done.failed and scene.watermark() == 130
    places, _ = kafka_groups.committed(scene.target.admin, [group])
    place = places[group][at]
    assert place is not None
    behind = [record for offset, record in read(scene.target.bootstrap, scene.topic, 0) if offset >= place.offset]
    assert [record.value for record in behind] == [record.value for record in numbered(10, 120)], "exact"
    assert row_of(given_up(scene)).seal == row.seal, "it may be repeated"


def overview(scene: Scenario) -> State:
    [row] = rows(scene.store, datetime.now(UTC), [scene.name])
    return row.state


def test_no_run_goes_on_behind_a_seal_until_it_is_opened_again(scene: Scenario, received: Inbox) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    scene.run()
    was = kill_source(scene)
    impatient = watcher(scene, received, alerts={"stalled_after": 1}, timeouts={"request": 3})
    impatient.look()
    assert {cause.key.kind for cause in impatient.look().open} == {Kind.CLUSTER}
    given_up(scene)
    assert not impatient.look().open, "nobody needs the source any more"
    [line] = scene.run().ranges
    assert line.error and "this direction was sealed by failover" in line.error, "also without the source"
    scene.source = was
    scene.source.produce(scene.topic, numbered(5, 20))
    scene.source.create(f"{scene.topic}.new")
    scene.settings["topics"] = {"include": [f"^{scene.name}"]}
    report = scene.run()
    assert report.outcome == "failed"
    errors = {line.key.source.topic: line.error or "" for line in report.ranges}
    assert "this direction was sealed by failover" in errors[scene.topic] and "on fire" in errors[scene.topic]
    assert "this direction was sealed" in errors[f"{scene.topic}.new"], "nor is a new topic begun"
    assert len(read(scene.target.bootstrap, scene.topic, 0)) == 20
    watching = watcher(scene, received)
    assert watching.tell("1 of 1 ranges failed", report.run_id) == watching.look() == Decision(), "that was meant to be"
    assert overview(scene) is State.SEALED

    run = open_run(scene.replication(), scene.connections, scene.store, "undo")
    assert failover.undo(run).state == "opened again"
    assert scene.run().outcome == "done"
    scene.assert_copied()
    assert overview(scene) is not State.SEALED


def test_a_run_of_which_a_part_is_sealed_has_failed(scene: Scenario) -> None:
    copied_once(scene, partitions=2)
    given_up(scene)
    sealing.change(scene.bare_run(), scene.key(1), lambda at: (replace(at, sealed=None),) if at else ())
    report = scene.run()
    assert [line.key.source.partition for line in report.failed] == [0]
    assert overview(scene) is State.FAILING


def test_what_others_wrote_since_is_not_followed_by_copies(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    scene.run()
    given_up(scene)
    scene.target.produce(scene.topic, numbered(3, 900))
    run = open_run(scene.replication(), scene.connections, scene.store, "undo")
    with pytest.raises(Refused, match="do not end where they were sealed: 1;"):
        failover.undo(run)
    scene.target.delete_before(scene.topic, 0, scene.target.size(scene.topic))
    with pytest.raises(Refused, match="do not end where they were sealed"):
        failover.undo(run)  # retention has removed what they wrote
    scene.settings["on_existing_target"] = "append"
    leased = scene.bare_run("reset")
    with pytest.raises(Refused, match="this direction was sealed"):
        reset_topic(leased, scene.topic, None)
    assert scene.position().sealed


def test_a_copier_at_work_cannot_commit_behind_the_seal(scene: Scenario) -> None:
    """It loses its lease and is fenced; what it had committed is verified, and the rest is not on the target."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(60_000))
    scene.settings["copy"] = {"chunk_records": 100, "throughput_limit": 300_000}  # 20 s
    copier = run_process(scene)
    wait_until(lambda: bool(scene.bare_run().view().positions) and scene.position().next_offset > 1_000)
    row = row_of(given_up(scene))
    out = copier.rest()
    assert copier.wait() != 0 or '"failed"' in out, "the copier noticed it"
    assert row.seal and row.not_verified == 0 and 1_000 < row.verified_until < 60_000
    there = read(scene.target.bootstrap, scene.topic, 0)
    assert len(there) == row.verified_until and there[-1][0] < row.seal.target_until


def test_a_copier_that_was_killed_left_a_transaction_open(scene: Scenario) -> None:
    """It hides the ledger and the end of the target. It is ended, not waited for: its time-out is ten minutes."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(60_000))
    scene.settings["copy"] = {"chunk_records": 30_000, "throughput_limit": 1_000_000, "transaction_timeout": 600}
    copier = run_process(scene)

    def is_at_work() -> bool:
        """It has committed a chunk, and sends another one."""
        return not scene.is_settled(0) and any(each.next_offset for each in scene.bare_run().view().positions.values())

    wait_until(is_at_work)
    copier.send_signal(signal.SIGKILL)
    copier.rest()
    copier.wait()
    row = row_of(given_up(scene))
    assert row.seal and row.not_verified == 0 < row.verified_until < 60_000
    assert len(read(scene.target.bootstrap, scene.topic, 0)) == row.verified_until


def test_a_copier_that_was_told_before_the_seal_refuses_after_it(scene: Scenario) -> None:
    """An executor that hung, and whose driver is gone: it reads the position after it has fenced the others."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    job = scene.copy_job(0)
    given_up(scene)
    result = copy_once(job)
    assert result.error and "this direction was sealed by failover" in result.error
    assert not read(scene.target.bootstrap, scene.topic, 0)


def test_the_command_its_texts_and_its_documents(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    scene.run()
    code, out, _ = command(scene, "failover")
    assert (
        code == 0 and "nothing was changed; failover --apply seals this direction" in out and "nobody has looked" in out
    )
    code, out, _ = command(scene, "failover", "--apply", "--by", "ann", "--json")
    document = json.loads(out)
    assert code == 0 and document["applied"] and document["partitions"][0]["seal"]["by"] == "ann"
    code, _, err = command(scene, "run")
    assert code == 1 and "sealed by failover" in err + _
    code, _, err = command(scene, "failover", "--apply", "--undo")
    assert code == 2 and "contradict each other" in err
    code, out, _ = command(scene, "failover", "--undo")
    assert code == 0 and "open again" in out
    code, _, _ = command(scene, "run")
    assert code == 0


@pytest.mark.parametrize("settings", [{"partitioning": "by_key"}, {"delivery": "at_least_once"}], ids=str)
def test_directions_that_cannot_be_sealed(scene: Scenario, settings: dict[str, object]) -> None:
    scene.settings |= settings
    with pytest.raises(Refused, match="cannot be sealed"):
        preview(scene)


def test_a_target_that_lost_its_end_is_told_and_does_not_count_as_done(scene: Scenario) -> None:
    """Nothing copies it again any more: the source is given up."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    scene.run()
    position = scene.position()
    ahead = replace(position, target_end=position.target_end + 40)  # as if 40 more records of ours had been there
    with scene.bare_run().fenced(scene.key()) as session:
        apply(session.ledger, session.transaction, [Change(key=scene.key(), write=(ahead,))])
    done = given_up(scene)
    assert "it lost data" in row_of(done).error and done.failed


def test_a_group_that_could_not_be_read_the_last_time_keeps_its_places(scene: Scenario) -> None:
    scene.settings["groups"] = {"include": [f"^{scene.name}"]}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    group, at = f"{scene.name}-billing", TopicPartition(scene.topic, 0)
    kafka_groups.commit(scene.source.admin, group, {at: Committed(12)})
    scene.run()
    [row] = scene.store.groups(scene.name)
    scene.store.record_groups(scene.name, [replace(row, state="failed", why="no coordinator")])
    scene.target.admin.delete_consumer_groups([group])[group].result(30)
    kill_source(scene)
    done = given_up(scene)
    assert [(one.group, one.state) for one in done.groups] == [(group, "moved")]
    never_seen = replace(row, group="other", state="failed", partitions=())
    scene.store.record_groups(scene.name, [never_seen])
    assert preview(scene).groups[0].why == "its places at the source were never seen"


def test_a_topic_that_was_never_opened_is_told(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    scene.run()
    scene.source.create(f"{scene.topic}.new")
    scene.source.produce(f"{scene.topic}.new", numbered(9))
    scene.settings["topics"] = {"include": [f"^{scene.name}"]}
    looked(scene)
    done = given_up(scene)
    assert [(row.topic, row.beyond, row.seal is None) for row in done.partitions][-1] == (f"{scene.topic}.new", 9, True)
    assert not done.failed and "the source had 9 offsets that are not on the target" in done.text
