"""Whoever changes the copy or its receipts before they are compared is found out; the watermark stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from kafka_replication.kafka.commit import Atomic
from kafka_replication.model.offsets import Coverage
from kafka_replication.planning.backfill_request import parse
from kafka_replication.reporting.causes import problems
from kafka_replication.runs.reporting import standing
from tests.support import whole_runs
from tests.support.actions import put_receipt, receipts_of
from tests.support.jobs import InProcess, after_copy, copies
from tests.support.scenario import Rec, Scenario, numbered, only


def start(scene: Scenario) -> None:
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(200))
    scene.source.produce(scene.topic, numbered(50), 1)


CHUNKS: dict[str, Any] = {"copy": {"chunk_records": 50}}


def test_records_removed_before_verification(scene: Scenario) -> None:
    start(scene)
    scene.settings |= CHUNKS
    report = scene.run(after_copy(lambda: scene.target.delete_before(scene.topic, 0, 60)))
    assert report.outcome == "failed"
    line = only(report, 0)
    assert (line.digest_ok, line.copied, line.missing) == (False, 141, 59)
    for word in ("unverifiable", f"{scene.topic}-0", "starts at 60", "retention"):
        assert word in (line.error or ""), line.error
    assert (scene.watermark(0), scene.watermark(1)) == (0, 50)
    again = scene.run()
    assert again.outcome == "failed" and "unverifiable" in (only(again).error or "")
    assert scene.watermark(0) == 0


@pytest.mark.parametrize("explained", [False, True], ids=["nothing explains it", "its retention explains it"])
def test_copies_that_are_gone_before_they_were_read_back_are_missed_in_status_and_report(
    scene: Scenario, explained: bool
) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(200))
    # By size alone: brokers never delete the last segment for it, and this topic has one.
    limits = {"retention.ms": "-1", "retention.bytes": "1" if explained else "-1"}
    scene.target.create(scene.topic, config=limits)
    scene.settings |= CHUNKS
    line = only(scene.run(after_copy(lambda: scene.target.delete_before(scene.topic, 0, 60))))
    assert (line.copied, line.missing, line.digest_ok) == (141, 59, False)
    row = standing(scene.bare_run())[0]
    assert (row.state, row.missed.encode(), row.removed) == ("pending verification", [[0, 59]], 59)
    assert problems(scene.replication(), [row], datetime.now(UTC)) == [
        f"{scene.topic}-0: no longer on the target: [0, 59) of {scene.topic}-0 (59 offsets; {scene.topic}-0)"
    ]
    assert "kafka-replication backfill" in row.plan.remedy and "approve-gap" in row.plan.remedy
    again = scene.run()
    assert [(line.copied_before, line.missing) for line in again.ranges] == [(141, 59)], again.table()
    request = parse(scene.replication(), topics=[scene.topic], from_=0, until=59)
    report = whole_runs.backfill(scene.replication(), scene.connections, scene.store, InProcess(), request)
    assert report.outcome == "done", report.table()
    row = standing(scene.bare_run())[0]
    assert (row.state, row.plan.missed, scene.watermark()) == ("in sync", Coverage(), 200)


Receipts = dict[int, dict[str, Any]]  # by first offset: values of the receipts of one partition


def other_digest(receipts: Receipts) -> None:
    receipts[100]["placement"]["segments"][0]["digest"] = "0" * 32


def other_count(receipts: Receipts) -> None:
    receipts[100]["count"] += 1


def shorter_segment(receipts: Receipts) -> None:
    receipts[100]["placement"]["segments"][0]["last"] -= 1


def swapped_segments(receipts: Receipts) -> None:
    """The receipt points at another chunk's records."""
    there = receipts[0]["placement"]["segments"][0]
    receipts[100]["placement"]["segments"][0] |= {name: there[name] for name in ("first", "last")}


def other_digest_kind(receipts: Receipts) -> None:
    """As a newer version would write it."""
    receipts[100]["digest_kind"] = "xxh3_128/2"


def removed(receipts: Receipts) -> None:
    del receipts[100]


def overlapping(receipts: Receipts) -> None:
    receipts[100]["range"][0] = 90


def tamper(scene: Scenario, change: Callable[[Receipts], None], partition: int = 0) -> None:
    there = receipts_of(scene, partition)
    changed = {first: json.loads(json.dumps(value)) for first, (_, value) in there.items()}
    change(changed)
    for first, (key, value) in there.items():
        if changed.get(first) != value:
            put_receipt(scene, key, changed.get(first), partition)


# What is done to the receipts, what is said of it, and up to where the partition is verified all the same.
TAMPERED: list[tuple[Callable[[Receipts], None], str, int]] = [
    (other_digest, "[100, 150): the copy at", 100),
    (other_count, "do not add up", 100),
    (other_digest_kind, "digest kind 'xxh3_128/2'", 100),
    (shorter_segment, "differs from its receipt", 100),
    (swapped_segments, "differs from its receipt", 100),
    (removed, "no receipt for source offsets [100, 150)", 0),
    (overlapping, "overlap", 0),
]


def test_receipts_changed(scene: Scenario) -> None:
    """Each in a partition of its own, and one partition stays as it is."""
    untouched = len(TAMPERED)
    scene.source.create(scene.topic, untouched + 1)
    for partition in range(untouched + 1):
        scene.source.produce(scene.topic, numbered(200), partition)
    scene.settings |= CHUNKS

    def spoil() -> None:
        for partition, (change, _, _) in enumerate(TAMPERED):
            tamper(scene, change, partition)

    report = scene.run(after_copy(spoil))
    assert report.outcome == "failed"
    for partition, (_, words, verified) in enumerate(TAMPERED):
        line = only(report, partition)
        assert words in (line.error or ""), line.error
        assert line.remedy and line.digest_ok is False
        assert scene.watermark(partition) == verified
    assert (only(report, untouched).error, scene.watermark(untouched)) == (None, 200)


def test_level_count_does_not_claim_a_digest(scene: Scenario) -> None:
    start(scene)
    scene.settings |= CHUNKS
    report = scene.run(after_copy(lambda: tamper(scene, other_digest)), verify={"level": "count"})
    assert report.outcome == "done"
    assert only(report, 0).digest_ok is None
    assert scene.watermark(0) == 200


def test_a_verification_that_failed_is_repeated_once_the_receipt_is_right_again(scene: Scenario) -> None:
    start(scene)
    scene.settings |= CHUNKS
    saved = dict[int, tuple[bytes, dict[str, Any]]]()

    def spoil() -> None:
        saved.update(receipts_of(scene))
        tamper(scene, other_digest)

    assert scene.run(after_copy(spoil)).outcome == "failed"
    put_receipt(scene, *saved[100])
    launcher = InProcess()
    assert scene.run(launcher).outcome == "done"
    assert [copies(job) for job in launcher.jobs] == [[]], "it only reads back"
    assert scene.watermark(0) == 200
    scene.assert_copied(0, 1)


@pytest.mark.parametrize("transactional", [False, True], ids=("a plain record", "a transaction of one"))
def test_a_foreign_record_before_our_marker_is_named(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch, transactional: bool
) -> None:
    """It comes when a chunk's records are there and its marker is not; the same run's next chunk finds it."""
    scene.settings |= {"copy": {"chunk_records": 100}}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(300))
    commit, strangers = Atomic.commit, iter([[Rec(b"foreign", b"foreign")]])

    def after_a_stranger(self: Atomic, *chunk: Any) -> None:
        for records in strangers:
            (scene.target.transaction if transactional else scene.target.produce)(scene.topic, records)
        commit(self, *chunk)

    monkeypatch.setattr(Atomic, "commit", after_a_stranger)
    assert "that the ledger does not know" in (only(scene.run()).error or "")
