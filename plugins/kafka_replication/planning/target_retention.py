"""Finds the source offsets whose copies the target no longer has, and decides if the target's retention explains it.

Offsets of one key in one target partition only rise, in the order of its receipts. What is below the log start of that
partition is gone. If a chunk lies in several target partitions and only some of it is gone, then it is not known which
source offsets are: all of the chunk counts as gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_replication.ledger.account import Account
from kafka_replication.ledger.entries import Position, Receipt, Removed
from kafka_replication.ledger.placement import Part
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.model import commands
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, PartitionKey
from kafka_replication.planning.snapshot import PartitionOffsets, Topic

OFFERED = 3  # ranges that a remedy has a command for


@dataclass(frozen=True, slots=True)
class Retention:
    """The limits of a topic that deletes old records; None is no limit. In ms and bytes."""

    millis: int | None
    bytes: int | None

    @classmethod
    def in_config(cls, config: Mapping[str, str]) -> Retention:
        if "delete" not in config.get("cleanup.policy", "delete"):
            return cls(None, None)
        return cls(_limit(config, "retention.ms"), _limit(config, "retention.bytes"))


def _limit(config: Mapping[str, str], name: str) -> int | None:
    value = int(config.get(name, -1))
    return value if value >= 0 else None


def may_be_gone(account: Account, target: Topic | None) -> bool:
    """True if the target's log start has moved over offsets of ours since the last look at it."""
    ends = account.position.ends(account.key.source.partition)
    return any(
        min(offsets.log_start, ends[number]) > account.removed.start(number)
        for number, offsets in offsets_on(account.key, account.position, target).items()
    )


def offsets_on(key: PartitionKey, position: Position, target: Topic | None) -> dict[int, PartitionOffsets]:
    """The offsets of the target partitions that have records of the key, if they answer; none if the topic was
    re-created since the position was written.
    """
    if target is None or target.topic_id != position.ids.target_topic:
        return {}
    return {
        number: target.readable[number] for number in position.ends(key.source.partition) if number in target.readable
    }


def expected_end(account: Account, partition: int, commit_takes: int) -> int:
    """The end of a target partition if no other client wrote there after this key: behind its last record and the
    offsets that its commit takes.

    Aborted transactions can lie behind it.
    """
    end = account.position.ends(account.key.source.partition).get(partition, 0)
    wrote = account.position.coverage.subtract(account.given_up())
    if end == account.others_until:
        return end  # the records there are all of others
    return end + commit_takes if end and wrote else end


def removed(
    account: Account,
    receipts: Receipts,
    log_starts: Mapping[int, int],
    retention: Retention,
    young: int | None,
    stamp: tuple[str, str],
) -> Removed:
    """The present entry about copies of the partition that are gone, by the receipts from `Removed.receipts_from` on
    and the log starts of the target's partitions. ``stamp`` is run id and time.

    ``young`` is the first source offset whose record is too young to be removed by ``retention.ms``; None if the
    source's times are not known.
    """
    earlier = account.removed
    gone = _gone(account, receipts, log_starts).subtract(earlier.coverage)
    # What the target's own limits may have removed.
    until = MAX_OFFSET if retention.bytes is not None or young is None else young
    limited = retention.bytes is not None or retention.millis is not None
    explained = Coverage.of([OffsetRange(0, until)]) if limited else Coverage()
    if (spread := account.position.spread) is None:
        starts: dict[str, Any] = {"target_start": next(iter(log_starts.values()))}
    else:  # a partition that does not answer keeps its known one
        numbers = range(spread.by.partitions)
        starts = {"target_starts": tuple(log_starts.get(number, earlier.start(number)) for number in numbers)}
    stays = (
        stored.offset
        for stored in receipts.stored[account.key]
        if stored.receipt.generation == account.position.generation
        and any(part.until > log_starts.get(part.partition, 0) for part in stored.receipt.parts)
    )
    return replace(
        earlier,
        **starts,
        coverage=earlier.coverage.union(gone),
        unexplained=earlier.unexplained.union(gone.subtract(explained)),
        run_id=stamp[0],
        time=stamp[1],
        receipts_from=min(stays, default=receipts.ends[account.key.ledger_partition]),  # the first that still exists
    )


def _gone(account: Account, receipts: Receipts, log_starts: Mapping[int, int]) -> Coverage:
    """The source offsets of copies below the log start that are still counted as copied."""
    key, position = account.key, account.position
    written = receipts.of(key, position.generation)
    below = Coverage.of(gone for receipt in written if (gone := gone_of(receipt, log_starts)))
    first = dict(position.ends(key.source.partition))
    for part in (part for receipt in written for part in receipt.parts):
        first[part.partition] = min(part.first, first.get(part.partition, part.first))
    reached = any(start >= first.get(number, 0) > 0 for number, start in log_starts.items())
    if receipts.incomplete(key) and reached:
        # Receipts expire in the order of the copies: those without one lie before the first that has one.
        told = Coverage.of(receipt.range for receipt in written)
        elsewhere = account.given_up().union(account.removed.coverage)
        below = below.union(position.coverage.subtract(told).subtract(elsewhere))
    return below.intersection(position.coverage)


def gone_of(receipt: Receipt, log_starts: Mapping[int, int]) -> OffsetRange | None:
    """The part of a chunk that is below the log starts. If a chunk in one target partition has offsets without records,
    and is gone in part, this is the smallest part that it can be.
    """
    removed_records = sum(records_below(part, log_starts.get(part.partition, 0)) for part in receipt.parts)
    if not removed_records:
        return None
    whole = receipt.interleaved or removed_records >= sum(part.count for part in receipt.parts)
    return receipt.range if whole else OffsetRange(receipt.range.from_, receipt.range.from_ + removed_records)


def records_below(part: Part, log_start: int) -> int:
    """The number of the part's records below this offset. Each of its offsets is one."""
    return sum(max(0, min(log_start, range_.until) - range_.from_) for range_ in part.offsets)


def removal_text(key: PartitionKey, removed_: Coverage, missed: Coverage) -> str:
    """The text about offsets that are gone, with the reason if it is known. ``missed`` ones are unexplained."""
    text = f"no longer on the target: {removed_} of {key.source} ({removed_.span} offsets; {key.target})"
    if missed == removed_:
        return text
    return f"{text}; " + (f"not explained: {missed}" if missed else "its retention, or an approval, explains it")


def remedy(key: PartitionKey, missed: Coverage, pending: Coverage, log_start: int | None) -> str:
    """The remedy for ``missed`` offsets: a command for each of the first ranges that the source still has, and one that
    accepts the first. ``pending`` ones were never read back; their loss can be accepted in whole chunks. ``log_start``
    is the source's; None if it is not known.
    """
    offsets = missed.ranges[0]
    whole = " (the command names the whole chunks, if these offsets are not)" if pending.within(offsets) else ""
    given_up = f"accept it{whole}: {commands.approve_gap(key, offsets)}"
    readable = missed.within(OffsetRange(log_start or 0, MAX_OFFSET)).ranges
    if not readable:
        return f"the source no longer has them either; {given_up}"
    again = "; then ".join(commands.backfill(key, range_) for range_ in readable[:OFFERED])
    more = (
        f"; then {len(readable) - OFFERED} more ranges, which are named after these" if len(readable) > OFFERED else ""
    )
    return f"copy them again, first with --dry-run: {again}{more}; or {given_up}"
