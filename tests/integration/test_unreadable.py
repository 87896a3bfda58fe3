"""Batches on the source's disk that nobody can read: their partition fails until they can be read, or are given up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from kafka_replication.kafka import clients
from kafka_replication.model.errors import GapFound, NotReady, Refused
from kafka_replication.planning.backfill_plan import BackfillLine
from kafka_replication.planning.backfill_request import BackfillRequest, parse
from kafka_replication.planning.plan import State
from kafka_replication.reporting.run import RunReport
from kafka_replication.reporting.status import PartitionStatus
from kafka_replication.runs import backfill as backfilling
from kafka_replication.runs.reporting import standing
from tests.support import whole_runs
from tests.support.actions import approve
from tests.support.audits import audit
from tests.support.checker import read
from tests.support.damage import LAST_OFFSET_DELTA, batches, fill, healed
from tests.support.jobs import InProcess, no_launch
from tests.support.scenario import Rec, Scenario, numbered, only, send

START = 1_700_000_000_000  # the first record's timestamp; the others follow, a millisecond apart


def assert_rest_copied(scene: Scenario, missing: Iterable[int], partition: int = 0) -> None:
    """Call it while the source can be read."""
    source = [record for at, record in read(scene.source.bootstrap, scene.topic, partition) if at not in missing]
    assert [record for _, record in read(scene.target.bootstrap, scene.topic, partition)] == source


def assert_clean(scene: Scenario) -> None:
    audited = audit(scene.bare_run())
    assert audited.outcome == "clean", audited.text()


def asked(scene: Scenario, from_: int | str, until: int | str) -> BackfillRequest:
    return parse(scene.replication(), topics=[scene.topic], from_=str(from_), until=str(until), target_topic=None)


def previewed(scene: Scenario, request: BackfillRequest) -> BackfillLine:
    (line,) = backfilling.preview(scene.bare_run(), request).lines
    return line


def backfilled(scene: Scenario, request: BackfillRequest, launch: Any = None) -> RunReport:
    return whole_runs.backfill(scene.replication(), scene.connections, scene.store, launch or InProcess(), request)


def at(number: int) -> str:
    return datetime.fromtimestamp((START + number) / 1000, UTC).isoformat(timespec="milliseconds")


def offsets_of(scene: Scenario, target: str) -> list[int]:
    """The source offsets of the records there, in order."""
    numbers = {record.value: at for at, record in read(scene.source.bootstrap, scene.topic, 0)}
    return [numbers[record.value] for _, record in read(scene.target.bootstrap, target, 0)]


def test_all_before_it_is_copied_and_a_person_passes_it(scene: Scenario, source_data: Path) -> None:
    """Exactly what cannot be read is given up, and only as long as it cannot be read."""
    scene.source.create(scene.topic)
    fill(scene)
    bad = batches(source_data, scene.topic)[1]
    with healed(bad):
        bad.break_checksum()
        line = only(scene.run())
    assert f"{scene.topic}-0: the batch with the offsets [10, 20) is corrupted: its checksum is wrong" in str(
        line.error
    )
    assert f"approve-gap {scene.name}.yaml --topic {scene.topic} --partition 0 --from 10 --until 20" in line.remedy
    assert (line.copied, scene.watermark()) == (10, 10)
    with pytest.raises(Refused, match="no gap can be approved"):
        approve(scene, 10, 20)
    with healed(bad):
        bad.break_checksum()
        for until in (19, 21):
            with pytest.raises(GapFound, match=r"exactly \[10, 20\) are lost"):
                approve(scene, 10, until)
        gap, new = approve(scene, 10, 20)
        assert (gap.kind, new) == ("unreadable", True)
        report = scene.run()
        assert report.outcome == "done", report.table()
        assert (only(report).copied, scene.watermark()) == (20, 40)
        assert_clean(scene)
    assert_rest_copied(scene, range(10, 20))
    assert_clean(scene)
    scene.idle_run()


@pytest.mark.slow
def test_wherever_the_batch_lies(scene: Scenario, source_data: Path) -> None:
    """The first and the last; one that cannot be decompressed; two together, one with a header that says that it has
    one record only.
    """
    scene.source.create(scene.topic, 3)
    for partition, codec in enumerate(["none", "gzip", "lz4"]):
        fill(scene, partition, codec)
    ends, squeezed, middle = (batches(source_data, scene.topic, partition) for partition in range(3))
    expected = [[*range(10), *range(30, 40)], range(10, 20), range(10, 30)]
    with healed(ends[0], ends[3], squeezed[1], middle[1], middle[2]):
        for batch in (ends[0], ends[3], middle[1], middle[2]):
            batch.break_checksum()
        squeezed[1].break_compression()
        middle[1].write(LAST_OFFSET_DELTA, bytes(4))
        report = scene.run()
        assert "it cannot be decompressed" in str(only(report, 1).error), report.table()
        for partition, from_ in ((0, 0), (1, 10), (2, 10)):
            approve(scene, from_, from_ + 10, partition)
        scene.run()
        for partition, from_ in ((0, 30), (2, 20)):
            approve(scene, from_, from_ + 10, partition)
        report = scene.run()
        assert report.outcome in ("done", "nothing_to_do"), report.table()
        assert [scene.watermark(partition) for partition in range(3)] == [40, 40, 40]
        assert_clean(scene)
    for partition, missing in enumerate(expected):
        assert_rest_copied(scene, missing, partition)
    assert_clean(scene)


@pytest.mark.slow
def test_the_marker_of_an_aborted_transaction(scene: Scenario, source_data: Path) -> None:
    """Without it a reader takes the next transaction of the same producer for aborted, too: that one is copied."""
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
        assert "--from 5 --until 6 " in only(scene.run()).remedy
        approve(scene, 5, 6)
        report = scene.run()
        assert report.outcome == "done", report.table()
        assert only(report).copied == 10
        assert_clean(scene)
    assert_rest_copied(scene, ())
    assert_clean(scene)


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
        line = only(scene.run())
        assert "the batch with the offsets [30, 40) is corrupted" in str(line.error) and line.copied == 30
    assert scene.run().outcome == "done"
    scene.assert_copied()


def test_a_backfill_over_an_unreadable_batch(scene: Scenario, source_data: Path) -> None:
    """It fails behind all that lies before the batch; when that is given up, the same backfill goes on there. A live run
    copies the rest, before and behind.
    """
    scene.source.create(scene.topic)
    fill(scene)
    bad = batches(source_data, scene.topic)[1]
    with healed(bad):
        bad.break_checksum()
        assert previewed(scene, asked(scene, 5, 35)).records == 30, "estimated from what can be read"
        failed = backfilled(scene, asked(scene, 5, 35))
        assert failed.outcome == "failed" and "is corrupted" in (only(failed).error or ""), failed.table()
        assert only(failed).copied == 5 and offsets_of(scene, scene.topic) == list(range(5, 10))
        approve(scene, 10, 20)
        done = only(backfilled(scene, asked(scene, 5, 35)))
        assert (done.copied_before, done.copied, done.lost, done.not_visible, done.digest_ok) == (5, 15, 10, 0, True)
        backfilled(scene, asked(scene, 5, 35), no_launch)
        assert only(scene.run()).copied == 10 and scene.watermark() == 40
        assert_clean(scene)
    assert offsets_of(scene, scene.topic) == [*range(5, 10), *range(20, 35), *range(5), *range(35, 40)]


def test_a_time_that_its_broker_cannot_find_in_a_damaged_batch(scene: Scenario, source_data: Path) -> None:
    """It does not look at checksums, but it decompresses the batch that has the time."""
    scene.source.create(scene.topic, 2)
    fill(scene)
    fill(scene, 1, "gzip")
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
        assert first.lag_seconds is None and first.error is None
        assert second.lag == 5 and (second.lag_seconds or 0) > 0
    assert all((row.lag_seconds or 0) > 0 for row in rows())


def test_a_batch_that_unpacks_to_more_than_the_client_takes_by_default(scene: Scenario) -> None:
    """librdkafka calls a zstd batch corrupted if its records are larger than ``receive.message.max.bytes``."""
    scene.source.create(scene.topic)
    large = [Rec(value=bytes([number]) * 1_000_000) for number in range(150)]
    room = {"message_max_bytes": 1_000_000_000, "batch_size": 200_000_000, "linger_ms": 60_000}
    scene.source.produce(scene.topic, large, compression_type="zstd", **room)
    report = scene.run()
    assert (report.outcome, only(report).copied) == ("done", 150), report.table()


def test_records_with_headers_behind_a_batch_that_was_given_up(scene: Scenario, source_data: Path) -> None:
    """Their names are compared with the stored batches, where the one that was given up lies between them."""
    scene.settings |= {"copy": {"engine": "record"}, "failures": {"policy": "skip"}}
    scene.source.create(scene.topic)
    for number in range(4):
        records = [replace(record, headers=(("name", b"content"),)) for record in numbered(10, 10 * number)]
        scene.source.produce(scene.topic, records, 0, compression_type="none", linger_ms=60_000)
    bad = batches(source_data, scene.topic)[1]
    with healed(bad):
        bad.break_checksum()
        assert only(backfilled(scene, asked(scene, 8, 35))).copied == 2
        approve(scene, 10, 20)
        report = scene.run()
    assert report.outcome == "done" and only(report).copied == 28, report.table()
