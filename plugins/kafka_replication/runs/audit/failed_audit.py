"""Audits records that were set aside: they are in quarantine, or where a retry copied them, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_replication.ledger.entries import Handled, Receipt
from kafka_replication.ledger.placement import Part
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.planning.target_retention import records_below
from kafka_replication.reporting.audit import PartitionAudit
from kafka_replication.runs.audit.sides import Sides
from kafka_replication.runs.run import Run
from kafka_replication.verification.chunks import set_aside
from kafka_replication.verification.digest import Fingerprint
from kafka_replication.verification.digests import equals
from kafka_replication.verification.matching import Difference, Kind
from kafka_replication.verification.verify import TargetReader


def audit_failed(run: Run, sides: Sides, chosen: Sequence[Receipt], result: PartitionAudit) -> None:
    """Look for the records that were quarantined, and compare those that were retried with their entries."""
    with run.clusters.target.sink.verifier(result.key) as reader:
        _look_into_quarantine(sides, chosen, result, reader)
        for entry, part in sides.retried(result.key):
            _compare(sides, entry, part, result, reader)
    _find_doubled(sides, chosen, result)


def _look_into_quarantine(
    sides: Sides, chosen: Sequence[Receipt], result: PartitionAudit, reader: TargetReader
) -> None:
    retried = sides.view.retried(result.key, result.generation)
    not_visible = sides.view.not_visible(result.key, result.generation)
    decided = [entry.decided for entry in sides.view.handled_in(result.key, result.generation)]
    for failed in (failed for receipt in chosen for failed in receipt.failures):
        if failed.offset in not_visible:
            continue
        result.set_aside(failed, is_retried=failed.offset in retried)
        if failed.place is None or any(failed.offset in offsets for offsets in decided):
            continue
        if not reader.quarantined(failed):
            result.not_in_quarantine(failed)


def _compare(sides: Sides, entry: Handled, part: Part, result: PartitionAudit, reader: TargetReader) -> None:
    log = sides.log(TopicPartition(result.key.target_topic, part.partition))
    if gone := records_below(part, log.from_ if log else 0):
        result.retried_and_gone(entry, part, gone)
        return
    digest = Fingerprint()
    reader.read(part, digest)
    result.target_records += digest.count
    if not equals(digest, part):
        result.differ([Difference(Kind.ALTERED, entry.offsets.ranges[0].from_, part.first)])


def _find_doubled(sides: Sides, chosen: Sequence[Receipt], result: PartitionAudit) -> None:
    """A record that was retried although its chunk has it is there twice."""
    copied = Coverage.of(receipt.range for receipt in chosen)
    aside = Coverage.of(OffsetRange(offset, offset + 1) for receipt in chosen for offset in set_aside(receipt))
    if twice := sides.view.retried(result.key, result.generation).intersection(copied).subtract(aside):
        offsets = (offset for range_ in twice for offset in range(range_.from_, range_.until))
        result.differ(Difference(Kind.EXTRA, offset, None, b"%d" % offset) for offset in offsets)
        result.notes.append(f"source offsets {twice} were retried, but the receipts of their chunks do not say why")
