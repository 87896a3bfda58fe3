"""Both directions between two clusters: no record goes back to where it came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.kafka import topics
from kafka_replication.model.trouble import Trouble
from kafka_replication.runs import checking
from kafka_replication.runs.run import open_run
from tests.support import audits as auditing
from tests.support.checker import read
from tests.support.scenario import Cluster, Rec, Scenario

ROUNDS = 2


@pytest.fixture
def back(scene: Scenario, tmp_path: Path) -> Iterator[Scenario]:
    """The other direction, with a ledger on the other cluster."""
    folder = tmp_path / "back"
    folder.mkdir()
    made = Scenario(scene.target, scene.source, folder)
    made.topic = scene.topic
    yield made
    made.store.close()


def selecting_copies(direction: Scenario) -> None:
    """Each direction copies what is produced at its source, and what the other direction copied there."""
    direction.settings |= {
        "topics": {
            "include": [direction.topic, f"copy.{direction.topic}"],
            "rename": "copy.{topic}",
            "exclude_from": [topics.cluster_id(direction.target.admin)],
        },
        "transform": "provenance",
    }


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for _, record in read(cluster.bootstrap, topic, 0)]


def local(side: str, number: int) -> list[Rec]:
    return [Rec(b"k", b"%s %d" % (side.encode(), 10 * number + one)) for one in range(4)]


def warned_of_loops(direction: Scenario, **changes: Any) -> list[Trouble]:
    run = open_run(direction.replication(**changes), direction.connections, direction.store, "check")
    return [one for one in checking.check(run).findings if "go round" in one.what]


def test_two_directions_do_not_loop(scene: Scenario, back: Scenario) -> None:
    """Rounds with new records on both sides. Each side has all records of the other one, once, and gets none of
    its own back.
    """
    for direction in (scene, back):
        direction.source.create(direction.topic)
        direction.source.create(f"copy.{direction.topic}")
        selecting_copies(direction)
    produced: dict[str, list[bytes | None]] = {"here": [], "there": []}
    returned = 0
    for number in range(ROUNDS):
        for side, direction in (("here", scene), ("there", back)):
            direction.source.produce(direction.topic, local(side, number))
            produced[side] += [record.value for record in local(side, number)]
            report = direction.run()
            assert report.outcome == "done", report.table()
            returned += sum(line.filtered for line in report.ranges)
    scene.run()
    copies = f"copy.{scene.topic}"
    assert values(scene.target, copies) == produced["here"]
    assert values(scene.source, copies) == produced["there"]
    assert values(scene.target, f"copy.{copies}") == values(scene.source, f"copy.{copies}") == []
    assert returned >= 2 * 4 * (ROUNDS - 1)
    for direction in (scene, back):
        found = auditing.audit(direction.bare_run("audit"))
        assert found.outcome == "clean", found.text()


@pytest.mark.slow  # the directions are above, sharing is in `test_partitioning.py`
def test_two_directions_share_one_topic(scene: Scenario, back: Scenario) -> None:
    """The topic has the same name on both sides, and producers of its own there: it has every record once."""
    everything: list[bytes | None] = []
    for side, direction in (("here", scene), ("there", back)):
        direction.source.create(direction.topic)
        direction.settings |= {
            "topics": {
                "include": [direction.topic],
                "exclude_from": [topics.cluster_id(direction.target.admin)],
            },
            "transform": "provenance",
            "on_existing_target": "share",
        }
        direction.source.produce(direction.topic, local(side, 0))
        everything += [record.value for record in local(side, 0)]
    for number in range(1, ROUNDS):
        for side, direction in (("here", scene), ("there", back)):
            report = direction.run()
            assert report.outcome == "done", report.table()
            direction.source.produce(direction.topic, local(side, number))
            everything += [record.value for record in local(side, number)]
    assert warned_of_loops(scene) == []
    (found,) = warned_of_loops(scene, transform=[])
    assert f"{back.name} copies {scene.topic} back" in found.what and found.severity == "warning"
    returned = 0
    for direction in (scene, back, scene, back):
        report = direction.run()
        returned += sum(line.filtered for line in report.ranges)
    assert returned > 0
    for direction in (scene, back):
        assert Counter(values(direction.source, direction.topic)) == Counter(everything)
        audited = auditing.audit(direction.bare_run("audit"))
        assert audited.outcome == "clean", audited.text()


def test_a_wrong_cluster_id_is_warned_of(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.create(f"copy.{scene.topic}")
    selecting_copies(scene)
    assert not [one for one in checking.check(scene.bare_run()).findings if "exclude_from" in one.what]
    scene.settings["topics"]["exclude_from"] = ["typo"]
    (found,) = [one for one in checking.check(scene.bare_run()).findings if "exclude_from" in one.what]
    assert found.severity == "warning" and topics.cluster_id(scene.target.admin) in found.what
