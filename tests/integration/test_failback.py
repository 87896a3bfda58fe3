"""There and back: the source is given up, others write to the target, and everything comes back to the old topics once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.kafka import groups as kafka_groups
from kafka_replication.kafka.groups import Committed
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.runs import audit as auditing
from kafka_replication.runs import failback, failover, sealing
from kafka_replication.runs.run import LeasedRun
from tests.support.checker import read
from tests.support.jobs import InProcess
from tests.support.scenario import Cluster, Scenario, numbered
from tests.support.turning import (
    WISHES,
    Died,
    commit,
    cut_over,
    gone_back,
    numbers,
    opened,
    reverse,
    until_done,
    values,
)


def only_there(cluster: Cluster, topic: str, wanted: range) -> Coverage:
    """The offsets of these records, as a plain client reads them."""
    offsets = [at for at, record in read(cluster.bootstrap, topic, 0) if record.value in numbers(wanted)]
    return Coverage.of(OffsetRange(at, at + 1) for at in offsets)


@pytest.fixture
def back(scene: Scenario, tmp_path: Path) -> Iterator[Scenario]:
    with reverse(scene, tmp_path) as made:
        yield made


def test_with_records_that_only_the_source_has(scene: Scenario, back: Scenario) -> None:
    """They stay where they are; what was written to the target since comes behind them; then they come, too."""
    scene.settings["groups"] = back.settings["groups"] = {"include": [f"^{scene.name}"]}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    group, at = f"{scene.name}-billing", TopicPartition(scene.topic, 0)
    commit(scene.source.admin, group, {at: Committed(60)})
    assert scene.run().outcome == "done"
    scene.source.produce(scene.topic, numbered(7, 100))  # never copied
    failover.failover(opened(scene, "over"), WISHES, InProcess())
    scene.target.produce(scene.topic, numbered(20, 200))
    end = scene.target.size(scene.topic)
    commit(scene.target.admin, group, {at: Committed(end - 5)})

    dry = failback.preview(opened(scene), opened(back), WISHES, InProcess())
    [row] = dry.partitions
    assert (row.lag, row.surplus) == (20, 7), "shown first"
    assert row.new == only_there(scene.target, scene.topic, range(200, 220))
    assert row.surplus_offsets == only_there(scene.source, scene.topic, range(100, 107))
    assert row.begins_at == scene.source.size(scene.topic)
    assert [(one.group, one.state, one.again) for one in dry.groups] == [(group, "planned", 15)]
    assert dry.groups[0].partitions[0].place == 100
    assert f"{back.name} copies from target (where {scene.name} copied to) back to source" in dry.text
    assert not back.bare_run().view().positions, "nothing was changed"
    done = gone_back(scene, back)
    assert not done.failed, done.text
    assert values(scene.source, scene.topic) == numbers(range(107), range(200, 220))
    places, _ = kafka_groups.committed(scene.source.admin, [group])
    place = places[group][at]
    assert place is not None and place.offset == 100, "it has not read what only the source had"
    assert done.groups[0].again == 15, "and is told what it reads again"

    scene.source.produce(scene.topic, numbered(3, 300))
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert values(scene.target, scene.topic) == numbers(range(100), range(200, 220), range(100, 107), range(300, 303))
    assert back.run().outcome == "failed", "the other direction is sealed"
    assert gone_back(scene, back, "again").text.count("opened before") == 1


class Crashes:
    """Dies once before, and once after, each change of a position; each attempt comes a step further."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real, self._done = sealing.change, set[tuple[str, str]]()
        monkeypatch.setattr(sealing, "change", self)

    def __call__(self, run: LeasedRun, key: PartitionKey, make: Any) -> None:
        self._die("before", run, key)
        self._real(run, key, make)
        self._die("after", run, key)

    def _die(self, when: str, run: LeasedRun, key: PartitionKey) -> None:
        caller = sys._getframe(2).f_code.co_name
        place = when, f"{caller} {run.replication.name} {key}"
        if place not in self._done:
            self._done.add(place)
            raise Died(str(place))

    @property
    def count(self) -> int:
        return len(self._done)


def test_killed_at_each_change_of_a_position_and_repeated(
    scene: Scenario, back: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    for direction in (scene, back):
        direction.settings["groups"] = {"include": [f"^{scene.name}"]}
    scene.source.create(scene.topic, 2)
    for partition in range(2):
        scene.source.produce(scene.topic, numbered(30, 1000 * partition), partition)
    scene.run()
    crashes = Crashes(monkeypatch)
    until_done(lambda n: cut_over(scene, sample=0))
    scene.target.produce(scene.topic, numbered(9, 500), 0)
    until_done(lambda n: gone_back(scene, back, f"turn {n}"))
    assert crashes.count >= 2 * (2 + 2 + 2 + 2), "sealed, opened, sealed, opened: two partitions each"
    monkeypatch.undo()
    scene.source.produce(scene.topic, numbered(4, 600), 0)
    assert scene.run().outcome == "done"
    for cluster in (scene.source, scene.target):
        assert values(cluster, scene.topic) == numbers(range(30), range(500, 509), range(600, 604))
        there = [record.value for _, record in read(cluster.bootstrap, scene.topic, 1)]
        assert there == numbers(range(1000, 1030))


def test_there_and_back_again_and_again(scene: Scenario, back: Scenario) -> None:
    """A group moves along each time: it reads each record once, as all sides are at rest when it moves."""
    for direction in (scene, back):
        direction.settings["groups"] = {"include": [f"^{scene.name}"]}
    scene.source.create(scene.topic)
    group, at = f"{scene.name}-billing", TopicPartition(scene.topic, 0)
    got = list[bytes | None]()

    def at_work(cluster: Cluster, first: int, reads: int) -> None:
        """Ten records are written; the group reads some, commits and stops."""
        cluster.produce(scene.topic, numbered(10, first))
        places, _ = kafka_groups.committed(cluster.admin, [group])
        begin = place.offset if (place := places.get(group, {}).get(at)) else 0
        wanted = [(offset, record) for offset, record in read(cluster.bootstrap, scene.topic, 0) if offset >= begin][
            :reads
        ]
        got.extend(record.value for _, record in wanted)
        if wanted:
            commit(cluster.admin, group, {at: Committed(wanted[-1][0] + 1)})

    for turn in range(3):
        at_work(scene.source, 100 * turn, 8)
        done = cut_over(scene)
        assert not done.failed, done.text
        assert not turn or done.groups[0].again == 0, done.text
        at_work(scene.target, 100 * turn + 50, 9)
        done = gone_back(scene, back, f"turn {turn}")
        assert not done.failed, done.text
        assert done.groups[0].again == 0, done.text
    at_work(scene.source, 300, 1000)
    scene.run()
    everything = numbers(
        *(range(n, n + 10) for turn in range(3) for n in (100 * turn, 100 * turn + 50)), range(300, 310)
    )
    assert values(scene.source, scene.topic) == values(scene.target, scene.topic) == everything == got
    report = auditing.audit(opened(scene), auditing.AuditRequest(), InProcess())
    assert report.outcome == "clean", report.text()


def test_directions_that_cannot_be_turned_around(scene: Scenario, back: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    scene.run()
    with pytest.raises(BadInput, match="does not copy from the target"):
        gone_back(scene, scene)
    dry = failback.preview(opened(scene), opened(back), WISHES, InProcess())
    assert "is not sealed" in dry.partitions[0].error, "before anybody tries it"
    done = gone_back(scene, back)
    assert done.steps[0].state == "blocked" and "is not sealed" in done.text
    assert not back.bare_run().view().positions
    back.settings["topics"] = {"include": ["other"]}
    with pytest.raises(BadInput, match=f"does not copy {scene.topic} to {scene.topic}"):
        gone_back(scene, back)
    back.settings["topics"] = {"include": [back.topic]}
    cut_over(scene)
    scene.source.delete(scene.topic)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    done = gone_back(scene, back)
    assert "deleted or created anew" in done.text


def test_records_that_are_written_to_the_target_behind_the_seal_of_the_other_direction(
    scene: Scenario, back: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer was not stopped. They come back with the next call."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    cut_over(scene)
    scene.target.produce(scene.topic, numbered(5, 100))
    real = failback.Failback._open_forward

    def late(turning: failback.Failback) -> str:
        monkeypatch.undo()
        scene.target.produce(scene.topic, numbered(3, 200))
        return real(turning)

    monkeypatch.setattr(failback.Failback, "_open_forward", late)
    done = gone_back(scene, back)
    assert done.failed and "meanwhile, the first of them" in done.text, done.text
    assert scene.position().sealed
    done = gone_back(scene, back, "again")
    assert not done.failed, done.text
    assert values(scene.source, scene.topic) == numbers(range(10), range(100, 105), range(200, 203))


def test_a_source_that_still_gets_records_when_the_other_direction_was_opened(scene: Scenario, back: Scenario) -> None:
    """Somebody writes there before the first copy: they are not covered, and the command may be called again."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    scene.run()
    failover.failover(opened(scene, "over"), WISHES, InProcess())
    scene.target.produce(scene.topic, numbered(5, 100))
    turning = failback.Failback(forward=opened(scene), back=opened(back), asked=WISHES, launcher=InProcess())
    turning._open_back()
    scene.source.produce(scene.topic, numbered(2, 300))
    assert "foreign" in {line.error and "foreign" for line in back.run().failed}
    done = gone_back(scene, back)
    assert not done.failed, done.text
    assert values(scene.source, scene.topic) == numbers(range(10), range(300, 302), range(100, 105))
    scene.run()
    assert values(scene.target, scene.topic) == numbers(range(10), range(100, 105), range(300, 302))


def test_what_only_the_source_has_is_set_aside(scene: Scenario, back: Scenario) -> None:
    """It is in a topic of its own, once, and not copied to the old one later; a group need not read it again."""
    scene.settings["groups"] = back.settings["groups"] = {"include": [f"^{scene.name}"]}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    group, at = f"{scene.name}-billing", TopicPartition(scene.topic, 0)
    commit(scene.source.admin, group, {at: Committed(6)})
    scene.run()
    scene.source.produce(scene.topic, numbered(4, 10))
    failover.failover(opened(scene, "over"), WISHES, InProcess())
    scene.target.produce(scene.topic, numbered(5, 100))
    end = scene.target.size(scene.topic)
    commit(scene.target.admin, group, {at: Committed(end - 1)})
    wishes = replace(WISHES, aside=True)
    for _ in range(2):
        done = failback.failback(opened(scene), opened(back), wishes, InProcess())
        assert not done.failed, done.text
    assert values(scene.target, f"{scene.topic}.surplus") == numbers(range(10, 14))
    scene.source.produce(scene.topic, numbered(1, 200))
    report = scene.run()
    assert report.outcome == "done" and "ASIDE" in report.table()
    assert [line.lost for line in report.ranges] == [0]
    assert values(scene.target, scene.topic) == numbers(range(10), range(100, 105), range(200, 201))
    assert values(scene.source, scene.topic) == numbers(range(14), range(100, 105), range(200, 201))
    places, _ = kafka_groups.committed(scene.source.admin, [group])
    assert (place := places[group][at]) and place.offset == 14 + 4, "exact"


def test_topics_and_partitions_that_were_made_on_the_target_meanwhile(scene: Scenario, back: Scenario) -> None:
    """The other direction copies them as any new ones; then the first one goes on behind them, too."""
    new = f"{scene.topic}.new"
    scene.settings["topics"] = back.settings["topics"] = {"include": [f"^{scene.topic}"]}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    scene.run()
    failover.failover(opened(scene, "over"), WISHES, InProcess())
    scene.target.grow(scene.topic, 2)
    scene.target.produce(scene.topic, numbered(5, 200), 1)
    scene.target.create(new)
    scene.target.produce(new, numbered(4, 500))
    dry = failback.preview(opened(scene), opened(back), WISHES, InProcess())
    rows = {(row.topic, row.partition): (row.new, row.begins_at) for row in dry.partitions}
    assert rows[new, 0] == (Coverage.of([OffsetRange(0, 4)]), None) and rows[scene.topic, 1][0].span == 5
    assert rows[scene.topic, 0] == (Coverage(), 10)
    done = gone_back(scene, back)
    assert not done.failed, done.text
    scene.source.produce(scene.topic, numbered(3, 300), 1)
    scene.source.produce(new, numbered(2, 600))
    report = scene.run()
    assert report.outcome == "done", report.table()
    for cluster in (scene.source, scene.target):
        assert [record.value for _, record in read(cluster.bootstrap, scene.topic, 1)] == numbers(
            range(200, 205), range(300, 303)
        )
        assert values(cluster, new) == numbers(range(500, 504), range(600, 602))
    assert gone_back(scene, back, "again").steps[-1].what == "it was opened before"
