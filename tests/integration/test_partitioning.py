"""Records are spread over another number of target partitions: all of them arrive, once, in order, and are verified."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import murmur2

from tests.support.checker import Record, read
from tests.support.scenario import Rec, Scenario

BASE = 1_700_000_000_000


def fill(scene: Scenario, partitions: int, count: int, keys: int = 50, first: int = 0) -> None:
    """So many records in each source partition. A key is in one source partition only, as Java's producer does it."""
    for partition in range(partitions):
        records = [Rec(b"p%d-%d" % (partition, n % keys), b"%d" % n, (), BASE + n) for n in range(first, first + count)]
        scene.source.produce(scene.topic, records, partition)


def on(bootstrap: str, topic: str, partitions: int) -> list[list[Record]]:
    return [[record for _, record in read(bootstrap, topic, number)] for number in range(partitions)]


def assert_spread(scene: Scenario, sources: int, targets: int) -> list[list[Record]]:
    """Each record is there exactly once, and in each target partition those of a source partition are in their order."""
    source, target = on(scene.source.bootstrap, scene.topic, sources), on(scene.target.bootstrap, scene.topic, targets)
    assert Counter(record for log in target for record in log) == Counter(record for log in source for record in log)
    place = {record: (number, n) for number, log in enumerate(source) for n, record in enumerate(log)}
    for log in target:
        for number in range(sources):
            order = [place[record][1] for record in log if place[record][0] == number]
            assert order == sorted(order)
    return target


@pytest.mark.parametrize(("sources", "targets"), [(4, 3)])
def test_by_key(scene: Scenario, sources: int, targets: int) -> None:
    scene.settings |= {"partitioning": "by_key", "copy": {"chunk_records": 100}}
    scene.source.create(scene.topic, sources)
    scene.target.create(scene.topic, targets)
    fill(scene, sources, 300)
    report = scene.run()
    assert report.outcome == "done", report.table()
    target = assert_spread(scene, sources, targets)
    for number, log in enumerate(target):
        assert log and all(murmur2(record.key or b"", targets) == number for record in log)
    assert [scene.watermark(number) for number in range(sources)] == [300] * sources
    scene.idle_run()
