"""Gives source offsets back whose copies are gone, so that they are copied a second time. Pure.

The offsets leave the position's coverage, and the receipts of the gone copies leave the ledger. The ledger then
describes the target, so that copying and verifying need no other rules than for any backfill.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, replace

from kafka_replication.ledger.account import Account, Change
from kafka_replication.ledger.entries import Entry, Receipt, Removed
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, PartitionKey
from kafka_replication.planning.target_retention import records_below


@dataclass(frozen=True, slots=True)
class Remainder:
    """A chunk of which a part is gone: the ``lost`` source offsets. ``receipts`` are about the others."""

    chunk: OffsetRange
    lost: Coverage
    receipts: tuple[Receipt, ...]


def to_copy_again(account: Account, receipts: Collection[Receipt], wanted: OffsetRange, source_start: int) -> Coverage:
    """The offsets to copy a second time for ``wanted``: they are gone from the target, and the source still has them.

    Chunks that are gone as a whole are taken as a whole, because a receipt cannot be divided.
    """
    entry = account.removed
    # Without its receipt nothing shows any more where a copy stood.
    middle = entry.lost_above_start.intersection(Coverage.of(receipt.range for receipt in receipts))
    gone = entry.coverage.union(middle).intersection(account.position.coverage)
    # The copies of records that were retried lie elsewhere, and may still be there: they would be doubled.
    retried = account.decided("retried")
    gone = gone.subtract(Coverage.of(receipt.range for receipt in receipts if retried.within(receipt.range)))
    asked = gone.within(wanted)
    chunks = Coverage.of(
        receipt.range for receipt in receipts if is_gone(receipt, entry) and asked.within(receipt.range)
    )
    return gone.intersection(chunks.union(asked)).within(OffsetRange(source_start, MAX_OFFSET))


def is_gone(receipt: Receipt, entry: Removed) -> bool:
    """True if all records of the chunk were removed. A chunk without records has no record that can be removed."""
    return bool(receipt.parts) and (
        entry.lost_above_start.contains(receipt.range)
        or all(part.until <= entry.start(part.partition) for part in receipt.parts)
    )


def is_gone_in_part(receipt: Receipt, entry: Removed) -> bool:
    return not is_gone(receipt, entry) and (
        bool(entry.lost_above_start.within(receipt.range))
        or any(records_below(part, entry.start(part.partition)) for part in receipt.parts)
    )


def give_back(
    account: Account,
    receipts: Iterable[Receipt],
    wanted: Coverage,
    remainders: Collection[Remainder],
    stamp: tuple[str, str],
) -> tuple[Coverage, Change]:
    """The offsets of ``wanted``, from `to_copy_again`, that are copied again once the change is carried out. ``stamp``
    is run id and time.

    New receipts come first, and receipts are deleted last: after a crash without transactions, what was already given
    back tells which are left over. Without them nothing would tell what is gone, or how many records of it were set
    aside.

    Raises Refused for offsets of a chunk that is gone in part, if no remainder says in which.
    """
    position, entry, receipts = account.position, account.removed, tuple(receipts)
    before, wanted = wanted.subtract(position.coverage), wanted.intersection(position.coverage)
    left_over = [  # of a process without transactions that gave back their offsets and died
        receipt
        for receipt in receipts
        if before.within(receipt.range) and (is_gone(receipt, entry) or is_gone_in_part(receipt, entry))
    ]
    receipts = tuple(receipt for receipt in receipts if receipt not in left_over)
    cut = [receipt for receipt in receipts if is_gone_in_part(receipt, entry)]
    _refuse_unknown(account.key, wanted, cut, {remainder.chunk for remainder in remainders})
    offsets = wanted.subtract(Coverage.of(receipt.range for receipt in cut))
    deleted = [receipt for receipt in receipts if is_gone(receipt, entry) and offsets.within(receipt.range)]
    new: list[Entry] = []
    for remainder in remainders:
        if wanted.within(remainder.chunk):
            offsets = offsets.union(remainder.lost)
            deleted += [receipt for receipt in cut if receipt.range == remainder.chunk]
            new += remainder.receipts
            # What the target shows again is not gone.
            entry = replace(entry, lost_above_start=entry.lost_above_start.subtract(Coverage.of([remainder.chunk])))
    changed = without(account, offsets, deleted, entry, stamp)
    begins = {receipt.range.from_ for remainder in remainders for receipt in remainder.receipts}
    # A receipt is replaced by one that begins where it does: to delete it would delete that one.
    deleted = [receipt for receipt in deleted if receipt.range.from_ not in begins]
    entries = (*new, *changed) if offsets else ()
    delete = (*deleted, *left_over)
    return offsets, Change(key=account.key, write=entries, delete=delete, expects=account.position)


def without(
    account: Account, offsets: Coverage, deleted: Iterable[Receipt], entry: Removed, stamp: tuple[str, str]
) -> tuple[Entry, ...]:
    """The entries of the partition, the position first, once these offsets and receipts are taken out of them.
    ``entry`` is the one that notes it, as it is before. ``stamp`` is run id and time.
    """
    run_id, time = stamp
    noted = replace(
        entry,
        coverage=entry.coverage.subtract(offsets),
        unexplained=entry.unexplained.subtract(offsets),
        lost_above_start=entry.lost_above_start.subtract(offsets),
        recopy_allowed=entry.recopy_allowed.union(offsets),
        watermark_floor=max(entry.watermark_floor, account.watermark()),
        run_id=run_id,
        time=time,
    )
    position = account.position
    for receipt in deleted:
        position = position.counting(receipt, -1)
    entries: list[Entry] = [replace(position, coverage=position.coverage.subtract(offsets))]
    if account.verified.coverage:  # the second copies were not read back
        entries.append(replace(account.verified, coverage=account.verified.coverage.subtract(offsets)))
    for decision in account.handled:  # nor do decisions about records of the gone copies hold for them
        if more := decision.decided.intersection(offsets):
            entries += [replace(decision, given_back=decision.given_back.union(more))]
    return (*entries, noted)


def _refuse_unknown(key: PartitionKey, wanted: Coverage, cut: Iterable[Receipt], known: Container[OffsetRange]) -> None:
    """Raise Refused if some offsets are of a chunk whose gone offsets are not ``known``."""
    for receipt in cut:
        if wanted.within(receipt.range) and receipt.range not in known:
            why = "the source no longer has this range as it was copied"
            if receipt.interleaved:
                why = "they lie in several partitions there, or between records of others"
            raise Refused(
                f"{key.source}: only a part of {receipt.range} is gone from {key.target_topic}, and {why}:"
                " which offsets are gone cannot be found out",
                f"request only offsets outside of {receipt.range}",
            )
