"""Compares chunks that were written without transactions: what is lost, and what is there more than once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from kafka_replication.verification.matching import Difference, Kind, Sent, attribute, match


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryAudit:
    """Compares the chunks of one partition with the target, by content.

    The target's log may end before a chunk whose records are lost.
    """

    result: Findings
    target_log: OffsetRange
    source: Cursor
    target: RecordReader

    def all(self, work: Deliveries) -> None:
        """Add what differs to the result. A chunk that can no longer be made from the source is compared with its
        receipt.
        """
        for receipt in work.by_receipt:
            self._by_receipt(receipt)
        reproducible, result = work.by_content, self.result
        result.chunks += len(reproducible) + len(work.by_receipt)
        sent = chain.from_iterable(map(self._made, in_target_order(reproducible)))
        stretches = work.stretches.subtract(claimed(work.by_receipt))
        matched = match(sent, chain.from_iterable(map(self.target.seen, stretches)), ordered=False)
        near = chain.from_iterable(map(self._around, near_to(reproducible, work.readable, work.given_up)))
        copies, foreign = attribute(matched.extra, near)
        # Verification counted the duplicates of these chunks. The source no longer shows which records they are.
        counted = min(len(foreign), sum(receipt.duplicates for receipt in work.by_receipt))
        result.by_content += sum(receipt.range.span for receipt in reproducible)
        result.duplicates += len(copies) + counted
        result.differ(Difference(Kind.EXTRA, None, record.place, record.digest) for record in foreign[counted:])
        self._add_lost(reproducible, sorted({record.offset for record in matched.lost}))

    def _made(self, receipt: Receipt) -> Iterator[Sent]:
        return self.source.sent(receipt.range, without=set_aside(receipt))

    def _around(self, wanted: OffsetRange) -> Iterator[Sent]:
        """The source's records there, which perhaps were never copied."""
        return self.source.sent(wanted, lenient=True)

    def _by_receipt(self, receipt: Receipt) -> None:
        area, total = area_of(receipt), digest_for(receipt)()
        there = area.intersection(self.target_log) if area else None
        for _ in self.target.seen(there, total) if there else ():
            pass
        if receipt.lost_in_delivery or (area and area.span != receipt.count):
            self.result.lost_in_delivery += receipt.lost_in_delivery
            self.result.notes.append(
                f"the chunk {receipt.range} was written without a transaction and was not whole, and the source no"
                " longer shows what is missing: it was not compared"
            )
            return
        self.result.by_receipt += receipt.range.span
        if not equals(total, receipt):
            self.result.differ_by_receipt(receipt, total.count)

    def _add_lost(self, receipts: Sequence[Receipt], lost: Sequence[int]) -> None:
        """Add lost records as differences, but for those that verification has counted already."""
        of = defaultdict[OffsetRange, list[int]](list)
        for offset in lost:
            of[chunk_of(offset, receipts)].append(offset)
        for receipt in receipts:
            offsets = of[receipt.range]
            accepted = min(receipt.lost_in_delivery, len(offsets))
            self.result.lost_in_delivery += accepted
            self.result.differ(Difference(Kind.MISSING, offset, None) for offset in offsets[accepted:])
