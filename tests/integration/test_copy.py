"""Every kind of record arrives as it was, or is refused by name."""

from __future__ import annotations

import os
from typing import Any

from tests.support.checker import read
from tests.support.raw_produce import produce_raw
from tests.support.scenario import Cluster, Header, Rec, Scenario, numbered, only
from tests.support.waiting import wait_until

MANY: tuple[Header, ...] = tuple((f"h{n}", b"%d" % n) for n in range(100))
EDGES = [
    Rec(None, b"null key"),
    Rec(b"tombstone", None),
    Rec(None, None),
    Rec(b"", b""),
    Rec(b"empty value", b""),
    Rec(b"", b"empty key"),
    Rec(b"one header", b"v", (("name", b"value"),)),
    Rec(b"duplicates", b"v", (("a", b"1"), ("b", b"2"), ("a", b"1"), ("a", b"3"))),
    Rec(b"odd headers", b"v", (("null", None), ("empty", b""), ("", b"no name"), ("\u00fc\u4e16", b"\xff\xfe"))),
    Rec(b"many headers", b"v", MANY),
    Rec(b"\x00\xff\x80\x00", bytes(range(256))),
    Rec(b"1970", b"v", (), 1),
    Rec(b"2100", b"v", (), 4_102_444_800_000),
    Rec(b"before the last", b"v", (), 1_600_000_000_000),
    Rec(b"same", b"twice"),
    Rec(b"same", b"twice"),
    Rec(b"nearly the limit", os.urandom(1_048_000 - 500)),
    Rec(b"over the limit before compression", b"x" * 3_000_000),
]


def test_edge_records_arrive_unchanged(scene: Scenario) -> None:
    scene.source.create(scene.topic, 1, {"message.timestamp.after.max.ms": str(2**62)})
    scene.target.create(scene.topic, 1, {"message.timestamp.after.max.ms": str(2**62)})
    scene.source.produce(scene.topic, EDGES, compression_type="gzip")
    report = scene.run(copy={"chunk_records": 7})
    assert report.outcome == "done", report.table()
    assert (only(report).copied, only(report).not_visible, only(report).digest_ok) == (len(EDGES), 0, True)
    scene.assert_copied()
    assert scene.watermark() == len(EDGES)


def test_log_append_times_of_the_source_are_kept(scene: Scenario) -> None:
    scene.source.create(scene.topic, 1, {"message.timestamp.type": "LogAppendTime"})
    scene.source.produce(scene.topic, numbered(50))
    assert scene.run().outcome == "done"
    scene.assert_copied()


def test_many_chunks_and_partitions(scene: Scenario) -> None:
    """4,000 records in 40 chunks; the arithmetic of the report adds up."""
    scene.source.create(scene.topic, 3)
    for partition, count in enumerate((2_800, 1_200, 0)):
        scene.source.produce(scene.topic, numbered(count, size=100), partition)
    report = scene.run(copy={"chunk_records": 100})
    assert report.outcome == "done", report.table()
    assert [(each.key.source.partition, each.copied) for each in sorted(report.ranges, key=lambda r: r.key)] == [
        (0, 2_800),
        (1, 1_200),
    ]
    scene.assert_copied(0, 1, 2)
    assert [scene.watermark(partition) for partition in range(3)] == [2_800, 1_200, 0]


def test_every_compression_of_the_source_is_read(scene: Scenario) -> None:
    codecs = ("none", "zstd", "snappy")
    scene.source.create(scene.topic, len(codecs))
    for partition, codec in enumerate(codecs):
        scene.source.produce(scene.topic, numbered(1_000), partition, compression_type=codec)
    assert scene.run().outcome == "done"
    scene.assert_copied(*range(len(codecs)))


def test_transactions_of_the_source(scene: Scenario) -> None:
    """Committed records arrive, aborted ones do not, and what is not visible is accounted for."""
    scene.source.create(scene.topic)
    scene.source.transaction(scene.topic, numbered(700))
    scene.source.transaction(scene.topic, numbered(650, 10_000), abort=True)
    scene.source.produce(scene.topic, numbered(300, 700))
    scene.source.transaction(scene.topic, numbered(5, 20_000), abort=True)
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert (only(report).copied, only(report).not_visible) == (1_000, 650 + 5 + 3)
    scene.assert_copied()
    assert len(read(scene.target.bootstrap, scene.topic, 0)) == 1_000
    assert scene.watermark() == 1_658


def test_only_aborted_records(scene: Scenario) -> None:
    """A range without any visible record is copied, verified and done with."""
    scene.source.create(scene.topic)
    scene.source.transaction(scene.topic, numbered(20), abort=True)
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert (only(report).copied, only(report).not_visible, only(report).digest_ok) == (0, 21, True)
    assert scene.watermark() == 21
    assert read(scene.target.bootstrap, scene.topic, 0) == []
    scene.idle_run()


def test_empty_partition(scene: Scenario) -> None:
    scene.source.create(scene.topic, 2)
    scene.idle_run()
    assert (scene.watermark(0), scene.watermark(1)) == (0, 0)
    scene.idle_run()


def test_partition_that_was_emptied(scene: Scenario) -> None:
    """Everything was deleted before the first run: it starts where the log starts."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    scene.source.delete_before(scene.topic, 0, 10)
    scene.idle_run()
    scene.source.produce(scene.topic, numbered(3, 10))
    assert only(scene.run()).copied == 3
    scene.assert_copied()


def test_what_the_client_would_change_is_refused_by_name(scene: Scenario) -> None:
    """Everything before it is copied; nothing at or after it is. In one partition each, and one has nothing of the kind."""
    unfaithful: list[dict[str, Any]] = [{"timestamp": 0}, {"timestamp": -1}, {"headers": [(b"\xff\xfe", b"x")]}]
    healthy = len(unfaithful)
    scene.source.create(scene.topic, healthy + 1)
    for partition, more in enumerate(unfaithful):
        scene.source.produce(scene.topic, numbered(30), partition)
        assert produce_raw(scene.source.bootstrap, scene.topic, partition, b"k", b"v", **more) == 30
        scene.source.produce(scene.topic, numbered(30, 100), partition)
    scene.source.produce(scene.topic, numbered(40), healthy)
    report = scene.run(copy={"engine": "record", "chunk_records": 20})
    assert report.outcome == "failed"
    for partition in range(healthy):
        error = only(report, partition).error or ""
        assert f"{scene.topic}-{partition}" in error and "offset 30" in error, error
        assert "cannot be copied unchanged" in error, error
        assert scene.check(partition, until=30).clean
        assert scene.watermark(partition) == 30
    assert only(report, healthy).error is None
    scene.assert_copied(healthy)
    assert scene.watermark(healthy) == 40


def test_raw_records_that_are_fine_arrive(scene: Scenario) -> None:
    """The raw producer itself is no reason for a refusal."""
    scene.source.create(scene.topic)
    produce_raw(scene.source.bootstrap, scene.topic, 0, None, None, [("\u00fc".encode(), None)], timestamp=1)
    assert only(scene.run()).copied == 1
    scene.assert_copied()


def compact(source: Cluster, topic: str) -> int:
    """Fill a topic whose cleaner may work at once. Segments roll by the records' own times, so each turn is a minute later."""
    source.create(
        topic,
        1,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.001",
            "segment.ms": "1000",
            "max.compaction.lag.ms": "1000",
        },
    )
    start = 1_700_000_000_000
    for turn in range(3):
        now = start + 60_000 * turn
        source.produce(topic, [Rec(b"k%d" % (n % 40), b"turn %d, %d" % (turn, n), (), now) for n in range(200)])
        source.produce(topic, [Rec(b"k%d" % n, None, (), now) for n in range(0, 40, 9)])
    source.produce(topic, [Rec(b"last", b"rolls the segment before it", (), start + 600_000)])
    return 3 * 205 + 1


def test_compacted_source_with_holes(scene: Scenario) -> None:
    written = compact(scene.source, scene.topic)
    left = 40 + 1  # the cleaner is done when each key is there once; earlier, it would go on behind the copy
    wait_until(lambda: len(read(scene.source.bootstrap, scene.topic, 0)) == left)
    report = scene.run(copy={"chunk_records": 20})
    assert report.outcome == "done", report.table()
    assert (only(report).copied, only(report).not_visible) == (left, written - left)
    scene.assert_copied()
    scene.idle_run()
