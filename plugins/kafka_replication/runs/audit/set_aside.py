"""Records that were set aside: they are in quarantine, or where a retry copied them, and nowhere else. Pure: a worker
looks there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka_replication.ledger.entries import FailedRecord, Handled, Receipt
from kafka_replication.ledger.placement import Part
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.planning.retention.target_retention import records_below
from kafka_replication.reporting.audit import PartitionAudit
from kafka_replication.runs.audit.sides import Sides
from kafka_replication.verification.auditing import RetriedPart
from kafka_replication.verification.chunks import set_aside
from kafka_replication.verification.matching import Difference, Kind


def to_find_in_quarantine(sides: Sides, chosen: Sequence[Receipt], result: PartitionAudit) -> Iterator[FailedRecord]:
    """The records of these chunks that have to be in quarantine. Counts all that were set aside."""
    account = sides.view[result.key]
    retried, decided = account.retried(), [entry.decided for entry in account.handled]
    for failed in (failed for receipt in chosen for failed in receipt.failures):
        result.set_aside(failed, is_retried=failed.offset in retried)
        if failed.place is not None and not any(failed.offset in offsets for offsets in decided):
            yield failed


def to_compare(sides: Sides, retried: Sequence[tuple[Handled, Part]], result: PartitionAudit) -> Iterator[RetriedPart]:
    """The places of retried records. Those that are gone are added to the result."""
    for entry, part in retried:
        log = sides.log(TopicPartition(result.key.target_topic, part.partition))
        if gone := records_below(part, log.from_ if log else 0):
            result.retried_and_gone(entry, part, gone)
        else:
            yield RetriedPart(source=entry.offsets.ranges[0].from_, part=part)


def find_doubled(sides: Sides, chosen: Sequence[Receipt], result: PartitionAudit) -> None:
    """A record that was retried although its chunk has it is there twice."""
    copied = Coverage.of(receipt.range for receipt in chosen)
    aside = Coverage.of(OffsetRange(offset, offset + 1) for receipt in chosen for offset in set_aside(receipt))
    if twice := sides.view[result.key].retried().intersection(copied).subtract(aside):
        offsets = (offset for range_ in twice for offset in range(range_.from_, range_.until))
        result.differ(Difference(Kind.EXTRA, offset, None, b"%d" % offset) for offset in offsets)
        result.notes.append(f"source offsets {twice} were retried, but the receipts of their chunks do not say why")
