"""Audits chunks that were written without transactions: what is lost, and what is there more than once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from kafka_replication.kafka.cursor import Cursor
from kafka_replication.ledger.entries import Receipt
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange
from kafka_replication.reporting.audit import PartitionAudit
from kafka_replication.verification.audit import Difference, Kind, area_of
from kafka_replication.verification.delivery import balance, near_to, origins


def delivered_window(receipts: Sequence[Receipt], log: OffsetRange, *, complete: bool) -> OffsetRange | None:
    """The target offsets in which these chunks and their left-overs lie; None if there are no such chunks.

    A complete audit goes to the end of the log: what was left over last lies there.
    """
    first = min((receipt.after for receipt in receipts if receipt.after is not None), default=None)
    if first is None:
        return None
    areas = [area for receipt in receipts if (area := area_of(receipt))]
    until = MAX_OFFSET if complete else max((area.until for area in areas), default=first)
    return OffsetRange(first, max(first, until)).intersection(log)


@dataclass(frozen=True, slots=True)
class DeliveryAudit:
    """Compares the chunks of one partition with the target, by content. ``readable`` is what the source still has."""

    result: PartitionAudit
    readable: OffsetRange | None
    source: Cursor
    target: Cursor

    def all(self, receipts: Sequence[Receipt], stretches: Coverage) -> None:
        """Add what differs to the result. ``stretches`` are the target offsets where chunks and left-overs lie."""
        readable, result = self.readable or OffsetRange(0, 0), self.result
        known = [receipt for receipt in receipts if receipt.range.intersection(readable) == receipt.range]
        if len(known) < len(receipts):
            gone = Coverage.of(receipt.range for receipt in receipts).subtract(Coverage.of(r.range for r in known))
            result.notes.append(f"the source no longer has {gone}: copies of them count as records of others")
        result.chunks += len(receipts)
        result.by_content += sum(receipt.range.span for receipt in known)
        in_order = sorted(known, key=lambda receipt: (area.from_ if (area := area_of(receipt)) else -1, receipt.range))
        lost, extra = balance(
            chain.from_iterable(self.source.seen(receipt.range) for receipt in in_order),
            chain.from_iterable(map(self.target.seen, stretches)),
        )
        near = chain.from_iterable(map(self.source.seen, near_to(known, readable)))
        copies, foreign = origins(extra, near) if extra else ([], [])
        result.duplicates += len(copies)
        result.differ(Difference(Kind.EXTRA, None, record.offset, record.digest) for record in foreign)
        self._lost(known, lost)

    def _lost(self, receipts: Sequence[Receipt], lost: Sequence[int]) -> None:
        """What verification counted as lost is no difference; what is lost since then is."""
        of = defaultdict[OffsetRange, list[int]](list)
        for offset in lost:
            of[next(receipt.range for receipt in receipts if offset in receipt.range)].append(offset)
        for receipt in receipts:
            offsets = of[receipt.range]
            accepted = min(receipt.lost_in_delivery, len(offsets))
            self.result.lost_in_delivery += accepted
            self.result.differ(Difference(Kind.MISSING, offset, None) for offset in offsets[accepted:])
