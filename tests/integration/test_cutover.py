"""A planned cut-over: what stands in its way is named, and at its end everything is verified and sealed."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from kafka_replication.kafka import groups as kafka_groups
from kafka_replication.kafka.groups import Committed
from kafka_replication.model.choices import Action
from kafka_replication.model.errors import BadInput, Refused
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.overview.rows import facts_of
from kafka_replication.reporting.audit import AuditReport
from kafka_replication.reporting.signed import SIGNING_KEY
from kafka_replication.runs import certifying, cutover, failover, groups, source_ends
from kafka_replication.runs.audit import AuditRequest, audit
from kafka_replication.runs.cutover import Wishes
from kafka_replication.runs.reporting import standing
from kafka_replication.runs.run import Run
from kafka_replication.spark.launcher import Launcher
from kafka_replication.watermarks.sight import Lag
from stack.ports import LOOPBACK, free_ports
from tests.support.command_line import command
from tests.support.failed import QUARANTINE, ask
from tests.support.jobs import InProcess
from tests.support.scenario import Cluster, Rec, Scenario, numbered
from tests.support.turning import Died, commit, cut_over, died_at_the_seal, numbers, opened, values
from tests.support.waiting import wait_until


def test_producers_and_consumers_that_are_still_at_work(scene: Scenario) -> None:
    scene.settings["groups"] = {"include": [f"^{scene.name}"]}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    commit(scene.source.admin, f"{scene.name}-billing", {TopicPartition(scene.topic, 0): Committed(6)})
    dry = cutover.preview(opened(scene), Wishes(by="ann"), InProcess())
    assert [(row.source, row.lag) for row in dry.partitions] == [(TopicPartition(scene.topic, 0), 10)], "before a run"
    assert f"group {scene.name}-billing: would move: its places are known when it is copied" in dry.text
    scene.run()
    dry = cutover.preview(opened(scene), Wishes(by="ann"), InProcess())
    assert [(row.lag, bool(row.last_write)) for row in dry.partitions] == [(0, True)]
    assert [step.state for step in dry.steps] == ["to do"] * 6 and all(step.what for step in dry.steps)
    stop = threading.Event()

    def produce() -> None:
        while not stop.wait(0.05):
            scene.source.produce(scene.topic, numbered(1, 500))

    writer = threading.Thread(target=produce)
    writer.start()
    try:
        done = cut_over(scene)
    finally:
        stop.set()
        writer.join()
    assert done.failed and "producers still write" in done.text and not scene.position().sealed
    member = Consumer(
        {"bootstrap.servers": scene.source.bootstrap, "group.id": f"{scene.name}-g", "auto.offset.reset": "earliest"}
    )
    member.subscribe([scene.topic])
    wait_until(lambda: member.poll(0.1) is not None)
    member.commit(asynchronous=False)
    done = cut_over(scene)
    assert [(step.step, step.state) for step in done.steps] == [
        ("copied", "done"),
        ("groups", "blocked"),
        ("settings", "to do"),
        ("schemas", "to do"),
        ("sealed", "to do"),
        ("certificate", "to do"),
    ]
    assert (
        f"group {scene.name}-g still has members on source" in done.steps[1].what and "other" not in done.steps[1].what
    )
    member.close()
    done = cut_over(scene)
    assert not done.failed and done.cut, done.text
    assert cut_over(scene).steps[0].what == "it was sealed before"
    with pytest.raises(Refused, match="others may have written"):
        cutover.abort(opened(scene), Wishes(by="ann"), InProcess())


def test_a_cut_over_ends_with_a_certificate_and_its_groups_are_left_alone_then(scene: Scenario, tmp_path: Path) -> None:
    scene.settings["groups"] = {"include": [f"^{scene.name}"]}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    group, at = f"{scene.name}-billing", TopicPartition(scene.topic, 0)
    commit(scene.source.admin, group, {at: Committed(6)})
    done = cut_over(scene, out=tmp_path)
    assert not done.failed, done.text
    [file] = tmp_path.glob("*.json")
    made = json.loads(file.read_text())["certificate"]
    seal = scene.position().sealed
    assert seal and made["verified"] and made["cut"] == done.cut == seal.cut
    assert made["about"] == f"cutover: nobody has written to source since {done.cut}"
    assert file.with_suffix(".html").exists()
    again = cut_over(scene, out=tmp_path)
    assert [step.step for step in again.steps] == ["sealed", "certificate"], "it may be repeated"
    assert again.cut == done.cut, "the ledger keeps it"
    assert [row.group for row in again.groups] == [group], "and says what became of the groups"
    commit(scene.source.admin, group, {at: Committed(9)})
    rows = groups.move(opened(scene), apply=True).groups
    assert [row.why for row in rows] == [groups.SEALED] and rows[0].partitions[0].committed == 6
    places, _ = kafka_groups.committed(scene.target.admin, [group])
    assert places[group][at] == Committed(6)


def test_a_cut_over_that_died_before_it_noticed_a_record_does_not_say_that_it_is_done(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    died_at_the_seal(monkeypatch, lambda: scene.source.produce(scene.topic, numbered(3, 10)))
    with pytest.raises(Died):
        cut_over(scene)
    done = cut_over(scene)
    assert done.failed and "source has 3 offsets more" in done.steps[-1].what and done.cut is None
    assert not scene.store.certificates(scene.name), "none says that it is"
    failover.undo(opened(scene, "undo"))
    done = cut_over(scene)
    assert not done.failed and values(scene.target, scene.topic) == numbers(range(13)), done.text


def test_a_group_that_reads_on_until_the_seal_is_noticed(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.settings["groups"] = {"include": [f"^{scene.name}"]}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    group, at = f"{scene.name}-billing", TopicPartition(scene.topic, 0)
    commit(scene.source.admin, group, {at: Committed(6)})
    members = list[Consumer]()

    def audited(run: Run, request: AuditRequest, spark: Launcher) -> AuditReport:
        monkeypatch.undo()
        done = audit(run, request, spark)
        named = {"bootstrap.servers": scene.source.bootstrap, "group.id": group}
        member = Consumer({**named, "enable.auto.commit": False})
        member.subscribe([scene.topic])
        wait_until(lambda: member.poll(0.1) is not None)
        member.commit(offsets=[Place(scene.topic, 0, 10)], asynchronous=False)
        members.append(member)
        return done

    monkeypatch.setattr(cutover, "audit", audited)
    done = cut_over(scene, sample=-1)
    assert f"group {group} still has members on source" in done.text and not scene.position().sealed, done.text
    members[0].close()
    done = cut_over(scene, sample=-1)
    places, _ = kafka_groups.committed(scene.target.admin, [group])
    assert not done.failed and places[group][at] == Committed(10), (done.text, places)


def test_a_key_that_is_not_there_is_named_before_anything_is_sealed(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(5))
    assert "it is NOT signed" in cutover.preview(opened(scene), Wishes(by="ann"), InProcess()).text
    monkeypatch.setenv(SIGNING_KEY, "/nowhere.pem")
    with pytest.raises(BadInput, match="nowhere"):
        cut_over(scene)


def test_a_record_that_waits_for_a_decision_keeps_a_direction_from_being_sealed(scene: Scenario) -> None:
    scene.settings["failures"] = QUARANTINE
    scene.source.create(scene.topic, 2)  # one partition stays without a record
    scene.target.create(scene.topic, 2, {"max.message.bytes": "100000"})
    scene.source.produce(scene.topic, [*numbered(5), Rec(b"large", os.urandom(150_000))])
    done = cut_over(scene)
    assert [step.step for step in done.steps if step.state == "blocked"] == ["sealed"] and not scene.position().sealed
    assert f"in 1 partition; {scene.topic}-0: 1 records that could not be copied wait for a decision" in done.text
    ask(scene, Action.DISCARD, everything=True)
    done = cut_over(scene)
    assert not done.failed and "Everything that this replication copied is verified" in done.steps[-1].what, done.text


def test_producers_are_denied_and_given_back(scene: Scenario) -> None:
    """Without an authorizer there are no rules: it says so, and changes nothing."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    scene.run()
    done = cut_over(scene, deny=True)
    assert done.steps[0].state == "blocked" and "no authorizer" in done.text
    assert not scene.position().denied
    aborted = cutover.abort(opened(scene), Wishes(by="ann"), InProcess())
    assert aborted.steps[0].what == "nothing was denied"


def test_a_topic_that_is_made_while_nobody_may_write_is_copied_before_the_seal(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = f"{scene.topic}.new"
    scene.settings["topics"] = {"include": [f"^{scene.topic}"]}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    real = source_ends.still_written

    def meanwhile(run: Run, seconds: float) -> set[PartitionKey]:
        monkeypatch.undo()
        found = real(run, seconds)
        scene.source.create(new)
        scene.source.produce(new, numbered(4, 500))
        return found

    monkeypatch.setattr(source_ends, "still_written", meanwhile)
    done = cut_over(scene)
    assert not done.failed, done.text
    assert values(scene.target, new) == numbers(range(500, 504)) and len(done.partitions) == 2


def test_a_certificate_after_a_failover_names_what_only_the_source_had(scene: Scenario, tmp_path: Path) -> None:
    """By the last look at it, as it is not asked. And a seal is no problem of ``status``."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    scene.run()
    scene.source.produce(scene.topic, numbered(7, 10))
    rows = standing(scene.bare_run("watch"))
    scene.store.record_standing(scene.name, facts_of(scene.replication()), Lag(), rows)
    was, scene.source = scene.source, Cluster(f"{LOOPBACK}:{free_ports(1)[0]}")
    failover.failover(opened(scene, "over"), Wishes(by="ann"), InProcess())
    made = certifying.certify(opened(scene), tmp_path).certificate
    assert "the source had 7 offsets that were never copied" in made.verdict
    assert any("7 more offsets, when it was looked at last" in remark for remark in made.remarks)
    scene.source = was
    code, out, _ = command(scene, "status")
    assert code == 0 and "PROBLEM" not in out, out
