"""A target that lost segments in the middle of its log: an audit finds it, and a backfill copies it again once."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.planning.backfill_request import parse
from kafka_replication.planning.plan import State
from kafka_replication.reporting.status import status_table
from kafka_replication.runs.reporting import standing
from stack.kafka_cluster import KafkaCluster
from tests.support import audits, whole_runs
from tests.support.damage import batches
from tests.support.jobs import InProcess
from tests.support.scenario import Rec, Scenario, only

SEGMENT, SIZE = 2 << 20, 100_000  # bytes; of a segment, the smallest that Kafka takes is 1 MiB


def records(count: int, first: int = 0) -> list[Rec]:
    """Records that no codec makes smaller."""
    return [Rec(b"k%d" % n, random.Random(n).randbytes(SIZE)) for n in range(first, first + count)]


def copied(scene: Scenario) -> None:
    """200 large records in chunks of 50, which lie in about ten segments of the target."""
    scene.settings |= {"copy": {"chunk_records": 50}}
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, config={"segment.bytes": str(SEGMENT)})
    scene.source.produce(scene.topic, records(200))
    assert scene.run().outcome == "done" and scene.watermark() == 200


def lose(scene: Scenario, cluster: KafkaCluster, numbers: Iterable[int]) -> Coverage:
    """These segments are not on the target's disk any more. Returns the source offsets of their records."""
    broker, places = cluster.brokers[0], list[int]()
    files = sorted({batch.file for batch in batches(broker.data, scene.topic)})
    gone = [files[number] for number in numbers]
    for batch in batches(broker.data, scene.topic):
        places += range(batch.first, batch.last + 1) if batch.file in gone else ()
    broker.stop()
    for file in (file for one in gone for file in one.parent.glob(f"{one.stem}.*")):
        file.unlink()
    broker.start()
    # Behind each chunk there is the marker of its transaction.
    offsets = (place - place // 51 for place in places if place % 51 != 50)
    return Coverage.of(OffsetRange(offset, offset + 1) for offset in offsets)


def run_backfill(scene: Scenario, from_: int, until: int) -> int:
    request = parse(scene.replication(), topics=[scene.topic], from_=from_, until=until)
    report = whole_runs.backfill(scene.replication(), scene.connections, scene.store, InProcess(), request)
    assert report.outcome == "done", report.table()
    return only(report).copied


@pytest.mark.parametrize(
    "segments",
    [
        pytest.param(range(2, 7), id="chunks and parts of others"),
        pytest.param([3, 5], id="parts of two chunks", marks=pytest.mark.slow),
    ],
)
def test_an_audit_finds_it_and_a_backfill_copies_it_again(
    own_scene: Scenario, own_cluster: KafkaCluster, segments: Iterable[int]
) -> None:
    scene = own_scene
    copied(scene)
    lost = lose(scene, own_cluster, segments)
    offsets, first, last = str(lost), lost.ranges[0].from_, lost.ranges[-1].until
    assert standing(scene.bare_run())[0].plan.state is State.IN_SYNC, "its ends are where they were"
    found = audits.audit(scene.bare_run())
    assert found.outcome == "differs" and f"{offsets} are noted as gone" in found.text(), found.text()

    (row,) = standing(scene.bare_run())
    assert row.plan.state is State.REMOVED and str(row.plan.missed) == offsets
    assert offsets in status_table([row]) and f"--from {first} --until" in str(row.remedy)
    assert run_backfill(scene, first, last) == lost.span

    assert (
        str(scene.bare_run().view().of(scene.key(), 1).verified.coverage)
        == str(scene.position().coverage)
        == "[0, 200)"
    )
    compared = scene.check()
    assert not (compared.lost or compared.doubled or compared.altered or compared.foreign), str(compared)
    assert standing(scene.bare_run())[0].plan.state is State.IN_SYNC
    scene.idle_run()
    found = audits.audit(scene.bare_run())
    assert found.outcome == "clean", found.text()
    scene.target.produce(scene.topic, records(1, first))
    found = audits.audit(scene.bare_run())
    assert [row.extra for row in found.document().partitions] == [1], "a real duplicate is still found"


def test_what_the_target_shows_again_is_not_doubled(own_scene: Scenario, own_cluster: KafkaCluster) -> None:
    """As a replica may, that was away during the audit."""
    scene = own_scene
    copied(scene)
    broker = own_cluster.brokers[0]
    folder = broker.data / f"{scene.topic}-0"
    before = {file: file.read_bytes() for file in folder.glob("*") if file.is_file()}
    lost = lose(scene, own_cluster, range(2, 7))
    assert audits.audit(scene.bare_run()).outcome == "differs"
    broker.stop()
    for file, content in before.items():
        file.write_bytes(content)
    broker.start()
    with pytest.raises(Refused, match="would be doubled"):
        run_backfill(scene, lost.ranges[0].from_, lost.ranges[-1].until)
    assert audits.audit(scene.bare_run()).outcome == "clean"
