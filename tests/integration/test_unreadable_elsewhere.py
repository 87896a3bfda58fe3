"""Backfills over batches that nobody can read, and what `status` says of a partition that stands before one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.kafka.read import unreadable_batches
from kafka_replication.model.errors import NotReady
from kafka_replication.model.failures import Action
from kafka_replication.planning.backfill.backfill_plan import BackfillLine
from kafka_replication.planning.backfill.backfill_request import BackfillRequest, parse
from kafka_replication.planning.plan import State
from kafka_replication.reporting.run.report import RunReport
from kafka_replication.reporting.status import PartitionStatus
from kafka_replication.runs import backfill as backfilling
from kafka_replication.runs.report.partition_status import standing
from tests.support.audits import audit
from tests.support.checker import read
from tests.support.damage import batches, fill, healed
from tests.support.failed import ask
from tests.support.jobs import InProcess, no_launch
from tests.support.scenario import Rec, Scenario, numbered, only

SKIP = {"unreadable": "skip"}
START = 1_700_000_000_000  # the first record's timestamp; the others follow, a millisecond apart


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreadable_batches, "PAUSE", 0)


def asked(scene: Scenario, from_: int | str, until: int | str, target: str | None = None) -> BackfillRequest:
    return parse(scene.replication(), topics=[scene.topic], from_=str(from_), until=str(until), target_topic=target)


def previewed(scene: Scenario, request: BackfillRequest) -> BackfillLine:
    (line,) = backfilling.preview(scene.bare_run(), request).lines
    return line


def backfilled(scene: Scenario, request: BackfillRequest, launch: Any = InProcess) -> RunReport:
    return backfilling.run(scene.replication(), scene.connections, scene.store, launch, request)


def at(number: int) -> str:
    return datetime.fromtimestamp((START + number) / 1000, UTC).isoformat(timespec="milliseconds")


def offsets_of(scene: Scenario, target: str) -> list[int]:
    """The source offsets of the records there, in order."""
    numbers = {record.value: at for at, record in read(scene.source.bootstrap, scene.topic, 0)}
    return [numbers[record.value] for _, record in read(scene.target.bootstrap, target, 0)]


def assert_clean(scene: Scenario) -> None:
    audited = audit(scene.bare_run())
    assert audited.outcome == "clean", audited.text()


def test_a_backfill_over_an_unreadable_batch(scene: Scenario, source_data: Path) -> None:
    """By default it fails behind all that lies before the batch; with `skip` the same backfill goes on there. A live run
    copies the rest, before and behind.
    """
    scene.source.create(scene.topic)
    fill(scene)
    bad = batches(source_data, scene.topic)[1]
    with healed(bad):
        bad.break_checksum()
        assert previewed(scene, asked(scene, 5, 35)).records == 30, "estimated from what can be read"
        failed = backfilled(scene, asked(scene, 5, 35))
        assert failed.outcome == "failed" and "its batch is corrupted" in (only(failed).error or ""), failed.table()
        assert only(failed).copied == 5 and offsets_of(scene, scene.topic) == list(range(5, 10))
        scene.settings["failures"] = SKIP
        done = only(backfilled(scene, asked(scene, 5, 35)))
        assert (done.copied_before, done.copied, done.skipped, done.not_visible, done.digest_ok) == (5, 15, 10, 0, True)
        backfilled(scene, asked(scene, 5, 35), no_launch)
        assert only(scene.run()).copied == 10 and scene.watermark() == 40
        assert_clean(scene)
    assert offsets_of(scene, scene.topic) == [*range(5, 10), *range(20, 35), *range(5), *range(35, 40)]


@pytest.mark.slow
def test_backfills_that_begin_and_end_inside_of_the_batch(scene: Scenario, source_data: Path) -> None:
    """Into another topic, so that each has its failed records."""
    other = f"{scene.topic}.again"
    scene.settings["failures"] = SKIP
    scene.source.create(scene.topic)
    fill(scene)
    bad = batches(source_data, scene.topic)[1]
    with healed(bad):
        bad.break_checksum()
        assert scene.run().outcome == "done"
        parts = [only(backfilled(scene, asked(scene, from_, until, other))) for from_, until in ((14, 25), (8, 17))]
        assert [(part.copied, part.skipped, part.digest_ok) for part in parts] == [(5, 6, True), (2, 7, True)]
        assert_clean(scene)
        stays = ask(scene, Action.RETRY, everything=True)
        assert len(stays) == 20 and not any(row["done"] for row in stays)
    assert offsets_of(scene, other) == [*range(20, 25), 8, 9]
    retried = ask(scene, Action.RETRY, everything=True)
    assert [(row["target_topic"], row["offset"], row["done"]) for row in retried] == [
        (target, offset, True) for target in (scene.topic, other) for offset in range(10, 20)
    ]
    assert sorted(offsets_of(scene, scene.topic)) == list(range(40))
    assert sorted(offsets_of(scene, other)) == list(range(8, 25))
    assert_clean(scene)


def test_a_time_that_its_broker_cannot_find_in_a_damaged_batch(scene: Scenario, source_data: Path) -> None:
    """It does not look at checksums, but it decompresses the batch that has the time."""
    scene.source.create(scene.topic, 2)
    fill(scene)
    fill(scene, 1, "gzip")
    scene.settings["failures"] = SKIP
    plain, squeezed = (batches(source_data, scene.topic, partition)[1] for partition in range(2))
    with healed(plain, squeezed):
        plain.break_checksum()
        squeezed.break_compression()
        with pytest.raises(NotReady, match=f"{scene.topic}-1: .* the first record from 2023-.* is damaged") as refused:
            backfilled(scene, asked(scene, at(15), at(38)))
        assert refused.value.remedy.startswith("name an offset")
        found = backfilled(scene, asked(scene, at(20), at(38)))
    assert [(line.range.from_, line.copied) for line in found.ranges] == [(20, 18), (20, 18)], found.table()


def test_status_before_an_unreadable_batch(scene: Scenario, source_data: Path) -> None:
    """The age of what is behind is known of all other partitions, and of this one again when the batch can be read."""

    def rows() -> list[PartitionStatus]:
        return standing(scene.bare_run())

    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(1), 1)
    fill(scene)
    bad = batches(source_data, scene.topic)[1]
    with healed(bad):
        bad.break_checksum()
        assert scene.run().outcome == "failed"
        scene.source.produce(scene.topic, numbered(5, 1), 1)
        first, second = rows()
        assert (first.plan.state, first.plan.watermark, first.lag) == (State.BEHIND, 10, 30)
        assert first.lag_seconds is None and first.problem == ""
        assert second.lag == 5 and (second.lag_seconds or 0) > 0
    assert all((row.lag_seconds or 0) > 0 for row in rows())
    with healed(bad):
        bad.break_checksum()
        assert scene.run(failures=SKIP).outcome == "done"
        first, second = rows()
        assert (first.plan.state, first.lag, first.lag_seconds) == (State.IN_SYNC, 0, 0.0)
        assert (first.skipped, first.undecided, second.skipped) == (10, 10, 0)


def test_a_batch_that_unpacks_to_more_than_the_client_takes_by_default(scene: Scenario) -> None:
    """librdkafka calls a zstd batch corrupted if its records are larger than ``receive.message.max.bytes``."""
    scene.source.create(scene.topic)
    large = [Rec(value=bytes([number]) * 1_000_000) for number in range(150)]
    room = {"message_max_bytes": 1_000_000_000, "batch_size": 200_000_000, "linger_ms": 60_000}
    scene.source.produce(scene.topic, large, compression_type="zstd", **room)
    report = scene.run(failures=SKIP)
    assert (report.outcome, only(report).copied, only(report).skipped) == ("done", 150, 0), report.table()
