"""Compares chunks that were written without transactions: what is lost, and what is there more than once."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain

from kafka_replication.kafka.read.cursor import Cursor
from kafka_replication.ledger.entries import Receipt
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.targets.port import RecordReader
from kafka_replication.verification.auditing import Deliveries
from kafka_replication.verification.chunks import (
    area_of,
    chunk_of,
    claimed,
    in_target_order,
    set_aside,
)
from kafka_replication.verification.digests import digest_for, equals
from kafka_replication.verification.findings import Findings
from kafka_replication.verification.loss_count import near_to
from kafka_replication.verification.matching import Difference, Kind, attribute, match


def compare_deliveries(
    work: Deliveries, result: Findings, target_log: OffsetRange, source: Cursor, target: RecordReader
) -> None:
    """Add what differs to the result. A chunk that can no longer be made from the source is compared with its receipt.

    The target's log may end before a chunk whose records are lost.
    """
    for receipt in work.by_receipt:
        _by_receipt(receipt, result, target_log, target)
    reproducible = work.by_content
    result.chunks += len(reproducible) + len(work.by_receipt)
    sent = (source.sent(one.range, without=set_aside(one)) for one in in_target_order(reproducible))
    stretches = work.stretches.subtract(claimed(work.by_receipt))
    matched = match(chain.from_iterable(sent), chain.from_iterable(map(target.seen, stretches)), ordered=False)
    # Records of the source that perhaps were never copied.
    near = (source.sent(wanted, lenient=True) for wanted in near_to(reproducible, work.readable, work.given_up))
    copies, foreign = attribute(matched.extra, chain.from_iterable(near))
    # Verification counted the duplicates of these chunks. The source no longer shows which records they are.
    counted = min(len(foreign), sum(receipt.duplicates for receipt in work.by_receipt))
    result.by_content += sum(receipt.range.span for receipt in reproducible)
    result.duplicates += len(copies) + counted
    result.differ(Difference(Kind.EXTRA, None, record.place, record.digest) for record in foreign[counted:])
    # Lost records are differences, but for those that verification has counted already.
    lost = defaultdict[OffsetRange, list[int]](list)
    for offset in sorted({record.offset for record in matched.lost}):
        lost[chunk_of(offset, reproducible)].append(offset)
    for receipt in reproducible:
        offsets = lost[receipt.range]
        accepted = min(receipt.lost_in_delivery, len(offsets))
        result.lost_in_delivery += accepted
        result.differ(Difference(Kind.MISSING, offset, None) for offset in offsets[accepted:])


def _by_receipt(receipt: Receipt, result: Findings, target_log: OffsetRange, target: RecordReader) -> None:
    area, total = area_of(receipt), digest_for(receipt)()
    there = area.intersection(target_log) if area else None
    for _ in target.seen(there, total) if there else ():
        pass
    if receipt.lost_in_delivery or (area and area.span != receipt.count):
        result.lost_in_delivery += receipt.lost_in_delivery
        result.notes.append(
            f"the chunk {receipt.range} was written without a transaction and was not whole, and the source no longer"
            " shows what is missing: it was not compared"
        )
        return
    result.by_receipt += receipt.range.span
    if not equals(total, receipt):
        result.differ_by_receipt(receipt, total.count)
