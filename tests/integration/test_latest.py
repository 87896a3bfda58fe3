"""A target that keeps the newest record of each key, the whole way: whatever happens, each key shows its newest record."""

from __future__ import annotations

import random
import signal

import pytest

from kafka_replication.planning.backfill.backfill_request import parse
from kafka_replication.runs import backfill as backfilling
from kafka_replication.runs.failed.catalog import Selection, failed_records
from kafka_replication.runs.repair.reset import reset_topic
from kafka_replication.runs.report.partition_status import standing
from stack.opensearch_server import OpenSearchServer
from tests.support.audits import audit
from tests.support.checker import read
from tests.support.children import copy_process, end_of
from tests.support.jobs import InProcess, after_copy
from tests.support.opensearch import OpenSearchGround
from tests.support.scenario import Rec, Scenario, only

KEYS = 7


@pytest.fixture
def ground(scene: Scenario, opensearch: OpenSearchServer) -> OpenSearchGround:
    ground = OpenSearchGround.of(opensearch, "latest")
    scene.client = dict(ground.connection)
    scene.settings |= {
        "target": {"connection": "target", "type": "opensearch", "shape": "latest", "documents": {"value": "base64"}},
        "copy": {"chunk_records": 20},
    }
    return ground


def changes(count: int, first: int = 0) -> list[Rec]:
    """Records of few keys, one value in ten a tombstone."""
    return [
        Rec(b"k%d" % (n * n % KEYS), None if n % 10 == 9 else b"v%d" % n, (("n", b"%d" % n),))
        for n in range(first, first + count)
    ]


def newest(scene: Scenario) -> dict[bytes | None, tuple[int, bytes | None]]:
    """The offset and the value of the newest record of each key at the source."""
    return {record.key: (offset, record.value) for offset, record in read(scene.source.bootstrap, scene.topic, 0)}


def found(ground: OpenSearchGround, topic: str) -> dict[bytes | None, tuple[int, bytes | None]]:
    there = {record[2]: (offset, record[3]) for offset, record in ground.visible(topic)}
    assert len(there) == len(ground.visible(topic)), "two entries of one key"
    return there


def assert_newest(scene: Scenario, ground: OpenSearchGround) -> None:
    assert found(ground, scene.topic) == newest(scene)
    report = audit(scene.bare_run())
    assert all(partition.outcome == "clean" for partition in report.partitions), report.text()


def ready(scene: Scenario, count: int = 100) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, changes(count))


def test_the_newest_record_of_each_key_is_there_and_the_others_are_counted(
    scene: Scenario, ground: OpenSearchGround
) -> None:
    ready(scene)
    report = scene.run()
    assert report.outcome == "done", report.table()
    keys = len(newest(scene))
    assert (only(report).copied, only(report).superseded) == (100, 100 - keys)
    assert report.as_json()["promise"] == "latest"
    assert_newest(scene, ground)
    scene.idle_run()
    scene.source.produce(scene.topic, changes(30, 100))
    assert scene.run().outcome == "done"
    assert_newest(scene, ground)
    [row] = standing(scene.bare_run())
    assert row.state == "in sync"


@pytest.mark.parametrize("failpoint", ["P0", "P1:2", "P3:2"])
def test_a_copier_that_dies_is_healed_by_the_next_run(
    scene: Scenario, ground: OpenSearchGround, failpoint: str
) -> None:
    ready(scene)
    assert end_of(copy_process(scene, scene.copy_job(), failpoint)) == -signal.SIGKILL
    assert scene.run().outcome == "done"
    assert_newest(scene, ground)
    assert scene.watermark() == 100


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_happens_in_whatever_order(scene: Scenario, ground: OpenSearchGround, seed: int) -> None:
    """Runs, deaths, ranges that are copied again elsewhere, and a reset."""
    dice, produced, launcher = random.Random(seed), 40, InProcess()
    ready(scene, produced)
    assert scene.run().outcome == "done"
    for step in [*dice.choices(["run", "die", "backfill"], k=5), "reset"]:
        count = dice.randrange(1, 40)
        scene.source.produce(scene.topic, changes(count, produced))
        produced += count
        if step == "die":
            place = dice.choice(["P0", "P1:1", "P1:2", "P3:1"])
            end_of(copy_process(scene, scene.copy_job(), place))
        elif step == "backfill":
            low = dice.randrange(produced - count)
            request = parse(scene.replication(), topics=[scene.topic], from_=low, until=produced - count)
            backfilling.run(scene.replication(), scene.connections, scene.store, lambda: launcher, request)
        elif step == "reset":
            ground.delete(scene.topic)
            reset_topic(scene.bare_run("reset"), scene.topic)
        report = scene.run()
        assert report.outcome in ("done", "nothing_to_do"), (step, report.table())
        assert_newest(scene, ground)


def test_an_entry_that_was_changed_is_named(scene: Scenario, ground: OpenSearchGround) -> None:
    ready(scene)

    def change() -> None:
        key = ground.visible(scene.topic)[2][1][2]
        assert key is not None
        document = {"doc": {"kafka": {"value": "YQ=="}}}
        ground.ask("POST", f"{scene.topic}/_update/{key.decode()}", document, refresh=True)

    report = scene.run(after_copy(change))
    assert report.outcome == "failed" and "other content" in (only(report).error or ""), report.table()
    assert (scene.watermark() or 0) < 100


def test_a_record_without_a_key_and_one_in_the_wrong_partition_are_set_aside(
    scene: Scenario, ground: OpenSearchGround
) -> None:
    scene.settings["failures"] = {"policy": "quarantine", "limit": 10}
    scene.source.create(scene.topic, 2)
    right = [Rec(key, b"v") for key in (b"k0", b"k1", b"k2", b"k3", b"k4", b"k5", b"k6", b"k7")]
    scene.source.produce(scene.topic, [*right, Rec(None, b"v")])
    report = scene.run()
    assert report.outcome == "done", report.table()
    rows = failed_records(scene.bare_run(), scene.bare_run().view(), Selection())
    reasons = [row.record.reason for row in rows]
    assert "no key" in reasons[-1] and all("puts its key into partition 1 of 2" in why for why in reasons[:-1])
    there = found(ground, scene.topic)
    assert 0 < len(there) == len(right) + 1 - len(rows) < len(right)
