"""Batches on the source's disk that nobody can read: their offsets are set aside, and everything else is copied."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.read import unreadable_batches
from kafka_replication.model.failures import Action
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.runtime import failpoints
from tests.support.audits import audit
from tests.support.checker import read
from tests.support.damage import LAST_OFFSET_DELTA, Batch, batches, fill, healed
from tests.support.failed import ask, assert_each_once, failures, quarantined
from tests.support.scenario import Scenario, numbered, only, send

SKIP = {"unreadable": "skip"}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreadable_batches, "PAUSE", 0)


def offsets(scene: Scenario, partition: int = 0) -> list[int]:
    return [failed.offset for failed in failures(scene, partition)]


def assert_rest_copied(scene: Scenario, missing: Sequence[int], partition: int = 0) -> None:
    """Call it while the source can be read."""
    source = [record for at, record in read(scene.source.bootstrap, scene.topic, partition) if at not in missing]
    assert [record for _, record in read(scene.target.bootstrap, scene.topic, partition)] == source


def assert_clean(scene: Scenario) -> None:
    audited = audit(scene.bare_run())
    assert audited.outcome == "clean", audited.text()


@pytest.mark.slow
def test_wherever_the_batch_lies(scene: Scenario, source_data: Path) -> None:
    """The first and the last; one that cannot be decompressed; two together, one with a header that says that it has
    one record only. A retry copies them when they can be read again.
    """
    scene.source.create(scene.topic, 3)
    scene.settings |= {"failures": SKIP}
    for partition, codec in enumerate(["none", "gzip", "lz4"]):
        fill(scene, partition, codec)
    ends, squeezed, middle = (batches(source_data, scene.topic, partition) for partition in range(3))
    expected = [[*range(10), *range(30, 40)], list(range(10, 20)), list(range(10, 30))]
    with healed(ends[0], ends[3], squeezed[1], middle[1], middle[2]):
        for batch in (ends[0], ends[3], middle[1], middle[2]):
            batch.break_checksum()
        squeezed[1].break_compression()
        middle[1].write(LAST_OFFSET_DELTA, bytes(4))
        report = scene.run()
        assert report.outcome == "done", report.table()
        for partition, missing in enumerate(expected):
            line = only(report, partition)
            assert (line.copied, line.skipped, line.not_visible) == (40 - len(missing), len(missing), 0)
            assert line.digest_ok and scene.watermark(partition) == 40
            assert offsets(scene, partition) == missing
        assert {failed.error for failed in failures(scene, 1)} == {"_BAD_COMPRESSION"}
        (failed, *_) = failures(scene)
        assert (failed.kind, failed.size, failed.key_digest, failed.digest) == ("unreadable", -1, "", "")
        assert_clean(scene)
        stays = ask(scene, Action.RETRY, partition=2)
        assert len(stays) == 20 and not any(row["done"] for row in stays)
    for partition, missing in enumerate(expected):
        assert_rest_copied(scene, missing, partition)
    assert_clean(scene)
    done = ask(scene, Action.RETRY, everything=True)
    assert [row["state"] for row in done] == ["retried"] * 50
    for partition in range(3):
        assert_each_once(scene, partition=partition)
    assert_clean(scene)


@pytest.mark.slow
def test_the_marker_of_an_aborted_transaction(scene: Scenario, source_data: Path) -> None:
    """Without it a reader takes the next transaction of the same producer for aborted, too: that one is copied. A retry
    finds nothing that is visible at its offset, as soon as it can be read.
    """
    scene.settings |= {"failures": SKIP}
    scene.source.create(scene.topic)
    somebody = scene.source.transactional()
    for number in range(2):
        somebody.begin_transaction()
        send(somebody, scene.topic, numbered(5, 5 * number))
        (somebody.commit_transaction if number else somebody.abort_transaction)(30)
    scene.source.produce(scene.topic, numbered(5, 10))
    marker = next(batch for batch in batches(source_data, scene.topic) if batch.first == 5)
    with healed(marker):
        marker.break_checksum()
        report = scene.run()
        assert report.outcome == "done", report.table()
        assert (only(report).copied, offsets(scene)) == (10, [5])
        assert [row["done"] for row in ask(scene, Action.RETRY, everything=True)] == [False]
    (row,) = ask(scene, Action.RETRY, everything=True)
    assert (row["done"], row["state"], row["target"]) == (True, "not_visible", None)
    assert_rest_copied(scene, range(0))
    view = scene.bare_run().view()
    assert (view.set_aside(scene.key()), view.undecided(scene.key())) == ((0, 0), 0)
    assert_clean(scene)


@pytest.mark.slow
def test_a_range_that_begins_and_ends_inside_of_the_batch(
    scene: Scenario, source_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is met again by a run that dies before it commits, and by another one."""

    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    scene.source.create(scene.topic)
    fill(scene)
    bad = batches(source_data, scene.topic)[1]
    scene.settings |= {"failures": {"policy": "quarantine"}, "max_records_per_run": 13}
    with healed(bad):
        bad.break_checksum()
        lines = [only(scene.run())]
        with monkeypatch.context() as patch:
            patch.setenv(failpoints.VARIABLE, "P1")
            failpoints.forget()
            patch.setattr(failpoints, "die", die)
            with pytest.raises(Killed):
                scene.run()
        lines += [only(scene.run()), only(scene.run())]
    assert [line.range for line in lines] == [OffsetRange(0, 13), OffsetRange(13, 26), OffsetRange(26, 39)]
    assert [(line.copied, line.quarantined) for line in lines] == [(10, 3), (6, 7), (13, 0)]
    assert offsets(scene) == list(range(10, 20))
    found = quarantined(scene)
    assert [(record.key, record.value) for record in found] == [(None, None)] * 10
    assert {dict(record.headers)["kafka-replication.failed.content"] for record in found} == {b"incomplete"}
    assert scene.run().outcome == "done"
    assert_rest_copied(scene, range(10, 20))
    assert_clean(scene)


def test_it_fails_by_default_with_all_before_it_copied(scene: Scenario, source_data: Path) -> None:
    """So it does at the limit."""
    scene.source.create(scene.topic)
    fill(scene)
    bad = batches(source_data, scene.topic)[1]
    with healed(bad):
        bad.break_checksum()
        failed = scene.run()
        assert failed.outcome == "failed" and "its batch is corrupted" in (only(failed).error or ""), failed.table()
        assert (only(failed).copied, scene.watermark()) == (10, 10)
        limited = scene.run(failures={**SKIP, "limit": 4})
        assert limited.outcome == "failed" and "failures.limit" in (only(limited).error or "")
        assert (scene.watermark(), offsets(scene)) == (14, [10, 11, 12, 13])
        assert scene.run(failures=SKIP).outcome == "done"
        assert_clean(scene)
    assert_rest_copied(scene, range(10, 20))


def test_what_can_be_read_the_second_time_is_copied(
    scene: Scenario, source_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.source.create(scene.topic)
    fill(scene)
    bad: Batch = batches(source_data, scene.topic)[1]
    good, looks = bad.read(), list[float]()

    def mend(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == unreadable_batches.LOOKS:
            bad.write(0, good)

    monkeypatch.setattr(unreadable_batches, "time", SimpleNamespace(sleep=mend, monotonic=time.monotonic))
    bad.break_checksum()
    report = scene.run(failures=SKIP)
    assert report.outcome == "done", report.table()
    assert (len(looks), offsets(scene)) == (unreadable_batches.LOOKS, [])
    scene.assert_copied()


def test_a_readable_batch_before_another_bad_one(
    scene: Scenario, source_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was met can be read just when its end is searched. The search then meets the other one."""
    scene.source.create(scene.topic)
    fill(scene)
    _, met, _, other = batches(source_data, scene.topic)
    good, make = met.read(), clients.uncommitted_consumer

    def mended(*args: Any, **more: Any) -> Consumer:
        met.write(0, good)
        return make(*args, **more)

    monkeypatch.setattr(clients, "uncommitted_consumer", mended)
    with healed(met, other):
        met.break_checksum()
        other.break_checksum()
        report = scene.run(failures=SKIP)
        assert report.outcome == "done", report.table()
        assert offsets(scene) == list(range(30, 40))
    assert_rest_copied(scene, range(30, 40))


def test_a_batch_that_hides_its_rest_is_not_divided(scene: Scenario, source_data: Path) -> None:
    """Its header says that it has one record: a range that began behind that one would pass over the others."""
    scene.source.create(scene.topic)
    fill(scene)
    bad = batches(source_data, scene.topic)[1]
    scene.settings |= {"failures": SKIP, "max_records_per_run": 13}
    with healed(bad):
        bad.break_checksum()
        bad.write(LAST_OFFSET_DELTA, bytes(4))
        divided = scene.run()
        assert divided.outcome == "failed" and "set aside in one chunk" in (only(divided).error or ""), divided.table()
        assert (scene.watermark(), offsets(scene)) == (10, [])
        limited = scene.run(failures={**SKIP, "limit": 4})
        assert limited.outcome == "failed", limited.table()
        assert (scene.watermark(), offsets(scene)) == (10, [])
        assert only(scene.run(max_records_per_run=30)).skipped == 10
    assert_rest_copied(scene, range(10, 20))
