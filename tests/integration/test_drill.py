"""A drill: what a failover would leave if the source died now, without changing anything."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from kafka_replication.kafka import groups as kafka_groups
from kafka_replication.kafka.groups import Committed
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.overview.rows import rows
from kafka_replication.reporting.drill import DrillDocument
from kafka_replication.runs import failover, groups
from kafka_replication.runs.drill import drill
from kafka_replication.runs.run import open_run
from kafka_replication.runs.sealing import Asked
from kafka_replication.watermarks.sight import Drill
from stack.ports import LOOPBACK, free_ports
from tests.support.actions import receipts_of
from tests.support.command_line import command
from tests.support.jobs import InProcess
from tests.support.received import Inbox
from tests.support.scenario import Cluster, Rec, Scenario, numbered
from tests.support.waiting import SAFETY, wait_until
from tests.support.watching import events, watcher


def drilled(scene: Scenario) -> DrillDocument:
    return drill(open_run(scene.replication(), scene.connections, scene.store, "drill", looks=True))


def recent(count: int, seconds: float) -> list[Rec]:
    """Records that are so many seconds old."""
    at = int((time.time() - seconds) * 1000)
    return [replace(record, timestamp=at) for record in numbered(count)]


def everything(scene: Scenario) -> object:
    """The ends of both topics, what the ledger has of this replication, and the places of groups on the target."""
    ends = scene.source.size(scene.topic), scene.target.size(scene.topic)
    names = sorted(row.group for row in scene.store.groups(scene.name))
    placed = kafka_groups.committed(scene.target.admin, names)
    return ends, scene.bare_run("look").view().positions, receipts_of(scene), placed


class Died(Exception):
    pass


def die() -> None:
    raise Died


def kept(scene: Scenario) -> Drill | None:
    """The last drill as the store has it."""
    return scene.store.last_drill(scene.name)


def test_what_is_not_verified_is_counted_and_its_age_is_that_of_the_oldest_record(scene: Scenario) -> None:
    """17 copied and not verified, 7 never copied; one group is exact, and one would read again."""
    scene.settings["groups"] = {"include": [f"^{scene.name}"]}
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(100))
    exact, at = f"{scene.name}-exact", TopicPartition(scene.topic, 0)
    wait_until(lambda: not kafka_groups.commit(scene.source.admin, exact, {at: Committed(60)}))
    assert scene.run().outcome == "done"
    scene.source.produce(scene.topic, recent(17, 7200))
    with pytest.raises(Died):
        scene.run(InProcess(between=die))
    scene.source.produce(scene.topic, recent(7, 60))
    ahead = f"{scene.name}-ahead"
    wait_until(lambda: not kafka_groups.commit(scene.source.admin, ahead, {at: Committed(120)}))
    groups.move(scene.bare_run("groups"), apply=True)
    before = everything(scene)

    done = drilled(scene)
    assert (done.records, done.unknown, done.groups_exact, done.groups_moved) == (24, 0, 1, 2)
    assert done.since == "oldest record" and done.seconds is not None and 7200 <= done.seconds < 7200 + SAFETY
    assert done.said == "if the source died now: 24 records, 2.0 h (the age of the oldest of them), 1 of 2 groups exact"
    assert everything(scene) == before, "it changes nothing"
    assert kept(scene) == Drill(**{name: getattr(done, name) for name in Drill.__dataclass_fields__})
    [row] = rows(scene.store, done.time, [scene.name])
    assert row.drill == kept(scene) and row.lag.records == 24, "it has looked, as the watch does"


def test_a_source_that_is_gone_is_as_the_last_look_saw_it(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    scene.run()
    assert (drilled(scene).said, drilled(scene).looked) == ("if the source died now: 0 records, 0 s", True)
    scene.source.produce(scene.topic, recent(5, 600))
    drilled(scene)
    scene.source = Cluster(f"{LOOPBACK}:{free_ports(1)[0]}")
    done = drilled(scene)
    assert (done.records, done.since, done.looked) == (5, "oldest record", False)
    assert done.seconds is not None and done.seconds >= 600
    assert "the source did not answer" in done.text


def test_a_drill_of_what_nobody_has_looked_at_says_that_it_is_not_known(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    scene.run()
    scene.source = Cluster(f"{LOOPBACK}:{free_ports(1)[0]}")
    done = drilled(scene)
    assert (done.records, done.unknown, done.since) == (0, 1, "last verification")
    assert done.said.endswith("(since the last verification); of 1 partitions it is not known")


def test_the_command_and_what_cannot_be_drilled(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    code, _, err = command(scene, "drill")
    assert code == 1 and "nothing was copied yet" in err
    scene.run()
    code, out, _ = command(scene, "drill")
    assert code == 0 and "if the source died now: 0 records, 0 s" in out
    code, out, _ = command(scene, "drill", "--json")
    last = kept(scene)
    assert code == 0 and last and json.loads(out)["at"] == last.at
    run = open_run(scene.replication(), scene.connections, scene.store, "over")
    failover.failover(run, Asked(by="ann"), InProcess())
    assert drilled(scene).said == "this direction is sealed: a failover would change nothing"
    assert kept(scene) == last
    scene.settings["delivery"] = "at_least_once"
    with pytest.raises(Refused, match="cannot be sealed"):
        drilled(scene)


def test_what_is_asked_of_a_drill_fails_it_and_alerts_until_a_better_one(scene: Scenario, received: Inbox) -> None:
    scene.settings["objectives"] = asked = {"lag": 60, "drill_every": 3600}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    scene.run()
    watching = watcher(scene, received, objectives=asked)
    assert watching.look().alerts == (), "a first drill is due after an hour"
    scene.source.produce(scene.topic, recent(5, 600))
    code, out, _ = command(scene, "drill")
    assert code == 1 and "WORSE THAN ASKED 10 min would be lost, and objectives.lag allows 60 s" in out
    assert events(watching.look()) == ["opened drill-worse"]
    assert watching.look().alerts == ()
    scene.run()
    assert watching.look().alerts == (), "only another drill shows that it is better"
    assert not drilled(scene).failed
    assert events(watching.look()) == ["healed drill-worse"]
    last = kept(scene)
    assert last is not None
    scene.store.record_drill(scene.name, replace(last, at="2026-01-31T06:00:00.000Z"))
    impatient = watcher(scene, received, objectives=asked, alerts={"stalled_after": 1})
    wait_until(lambda: events(impatient.look()) == ["opened drill-overdue"])
