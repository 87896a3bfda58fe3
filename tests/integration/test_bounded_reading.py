"""Runs read of the ledger what they need: receipts from where unverified ones can begin. Receipts may expire."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Message

from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.kafka.ledger_reader import ReceiptsReader
from kafka_replication.kafka.reading import offset_of
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.model.offsets import LEDGER_PARTITIONS, Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning.backfill_request import parse
from kafka_replication.runs import repair
from kafka_replication.runs.audit import AuditRequest
from kafka_replication.runs.repair import Approval
from tests.support import audits as auditing
from tests.support import whole_runs
from tests.support.jobs import InProcess, after_copy
from tests.support.scenario import Scenario, numbered, only

CHUNKS: dict[str, Any] = {"copy": {"chunk_records": 10}}


def receipts(scene: Scenario, since: int | None = None) -> Receipts:
    return KafkaLedger({"bootstrap.servers": scene.target.bootstrap}, scene.target.admin, scene.name).receipts(
        {scene.key(): since}
    )


def pointer(scene: Scenario) -> int:
    offset = scene.bare_run().view()[scene.key()].receipts_from()
    assert offset is not None
    return offset


def test_a_run_reads_receipts_from_where_unverified_ones_begin(
    scene: Scenario, receipts_read_from: list[int | None]
) -> None:
    scene.settings |= CHUNKS
    scene.source.create(scene.topic)
    for count in range(3):
        scene.source.produce(scene.topic, numbered(100, 100 * count))
        begin = 0 if count == 0 else pointer(scene)
        receipts_read_from.clear()
        assert only(scene.run()).copied == 100
        assert receipts_read_from and all(offset is not None and offset >= begin for offset in receipts_read_from)
        assert receipts(scene, pointer(scene)).of(scene.key(), 1) == []
        assert len(receipts(scene).of(scene.key(), 1)) == 10 * (count + 1)
    receipts_read_from.clear()
    scene.idle_run()
    assert receipts_read_from == []
    scene.assert_copied()


def test_a_partition_reads_its_own_receipt_whatever_the_others_wrote(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker reads one receipt for each partition; with all receipts since the plan it would be quadratic."""
    read, of_workers = ReceiptsReader.read, ReceiptsReader.receipts_now
    counted, here = list[int](), threading.local()

    def reading(self: ReceiptsReader, ranges: Mapping[int, OffsetRange]) -> Iterator[Message]:
        for message in read(self, ranges):
            own = getattr(here, "own", {}).get(message.partition(), -1)
            # Behind its own lie those that others have written meanwhile.
            counted.extend([1] if offset_of(message) <= own else [])
            yield message

    def by_a_worker(self: ReceiptsReader, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        assert all(offset is not None for offset in wanted.values())
        here.own = {}
        for key, offset in wanted.items():
            here.own[key.ledger_partition] = max(offset or 0, here.own.get(key.ledger_partition, -1))
        try:
            return of_workers(self, wanted)
        finally:
            here.own = {}

    monkeypatch.setattr(ReceiptsReader, "read", reading)
    monkeypatch.setattr(ReceiptsReader, "receipts_now", by_a_worker)
    partitions = 2 * LEDGER_PARTITIONS
    scene.source.create(scene.topic, partitions)
    for count in range(2):
        for partition in range(partitions):
            scene.source.produce(scene.topic, numbered(1, count), partition)
        counted.clear()
        assert sum(line.copied for line in scene.run().ranges) == partitions
        assert len(counted) == partitions


def test_what_stays_unverified_is_read_again(scene: Scenario) -> None:
    scene.settings |= CHUNKS
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    report = scene.run(after_copy(lambda: scene.target.delete_before(scene.topic, 0, 15)))
    assert report.outcome == "failed" and "unverifiable" in (only(report).error or "")
    assert pointer(scene) <= min(stored.offset for stored in receipts(scene).stored[scene.key()])
    scene.source.produce(scene.topic, numbered(10, 100))
    report = scene.run()
    assert [(line.range.from_, line.copied, line.copied_before, line.missing) for line in report.ranges] == [
        (0, 0, 86, 14),  # what was gone before it was read back is missing
        (100, 10, 0, 0),
    ]


def test_a_backfill_over_what_was_copied_before_accounts_for_it(scene: Scenario) -> None:
    scene.settings |= CHUNKS
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(60))
    scene.run()
    scene.source.produce(scene.topic, numbered(40, 60))
    request = parse(scene.replication(), topics=[scene.topic], from_=20, until=100)
    line = only(whole_runs.backfill(scene.replication(), scene.connections, scene.store, InProcess(), request))
    assert (line.range, line.copied + line.copied_before, line.missing) == (OffsetRange(20, 100), 80, 0)


def expire(scene: Scenario, below: int) -> None:
    """As retention does, of the receipts topic."""
    scene.target.delete_before(RECEIPTS, scene.key().ledger_partition, below)


def test_receipts_that_expired_before_they_were_verified_are_named_and_can_be_given_up(own_scene: Scenario) -> None:
    scene = own_scene
    scene.settings |= CHUNKS
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))

    def third() -> int:
        return receipts(scene).stored[scene.key()][2].offset

    report = scene.run(after_copy(lambda: expire(scene, third())))
    line = only(report)
    assert line.error and "receipts of [0, 20) have expired" in line.error and "7776000 seconds" in line.error
    assert "approve-gap" in line.remedy and "--from 0 --until 20" in line.remedy
    assert scene.watermark() == 0
    given_up = Approval(
        at=TopicPartition(scene.topic, 0), range=OffsetRange(0, 20), reason="receipts expired", by="ann"
    )
    gap, new = repair.approve(scene.bare_run("approving"), given_up)
    assert new and gap.copied
    assert scene.run().outcome == "done"
    assert scene.watermark() == 100
    scene.idle_run()
    assert scene.bare_run().view().of(scene.key(), 1).verified.coverage == Coverage.of([OffsetRange(20, 100)])
    scene.assert_copied()


def test_an_audit_says_what_it_cannot_compare_since_receipts_expired(own_scene: Scenario) -> None:
    scene = own_scene
    scene.settings |= CHUNKS
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    assert scene.run().outcome == "done"
    expire(scene, receipts(scene).stored[scene.key()][2].offset)
    report = auditing.audit(scene.bare_run("audit"), AuditRequest())
    part = report.partitions[0]
    assert not part.errors and part.outcome == "clean", part
    assert any("receipts of [0, 20) have expired" in note and "retention.receipts" in note for note in part.notes)
    scene.target.produce(scene.topic, numbered(1, 900))
    assert auditing.audit(scene.bare_run("audit"), AuditRequest()).partitions[0].outcome != "clean"


def test_an_existing_ledger_of_another_configuration_is_taken_with_a_warning(
    own_scene: Scenario, caplog: pytest.LogCaptureFixture
) -> None:
    """As an earlier version created it."""
    scene = own_scene
    scene.bare_run().clusters.ledger.ensure(scene.replication())
    scene.target.set(POSITIONS, segment_bytes=str(1 << 30), segment_ms="604800000", min_cleanable_dirty_ratio="0.5")
    scene.target.set(RECEIPTS, cleanup_policy="compact")
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    assert scene.run().outcome == "done"
    command = f"--entity-name {POSITIONS} --add-config segment.bytes=1048576,segment.ms=60000"
    assert any(command in line for line in caplog.messages)
