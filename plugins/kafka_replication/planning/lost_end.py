"""Takes the last copies of a partition out of the ledger, because the target lost them or does not show them. Pure.

The receipts say where each copy stood. So the ledger then describes the target, and the source offsets are copied again
in their order, before newer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kafka_replication.ledger.account import Account, Change, target_ends
from kafka_replication.ledger.entries import Entry, Gap, Handled, Position, Receipt
from kafka_replication.ledger.placement import Part, ends_of
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import LedgerView, lost_before
from kafka_replication.model.choices import EXACTLY_ONCE
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, PartitionKey
from kafka_replication.model.times import now
from kafka_replication.planning.plan import Plan
from kafka_replication.planning.recopy import without


class NotProven(Exception):
    """The reason, as text for people, why the ledger cannot be brought in line with the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack:
    """The change after which these source offsets are to be copied again, and the one ``back`` to all entries as they
    were. ``standing`` offsets must not be copied again: other target partitions still show a part of their chunks.
    """

    offsets: Coverage
    change: Change
    back: Change
    standing: Coverage = field(default_factory=Coverage)

    def at(self, partition: int) -> Coverage:
        """The offsets of a target partition at which the receipts say that these chunks lie."""
        parts = (part for receipt in self.change.delete for part in receipt.parts if part.partition == partition)
        return Coverage.of(range_ for part in parts for range_ in part.offsets)


def take_back(account: Account, receipts: Receipts, ends: Mapping[int, int], stamp: tuple[str, str]) -> TakenBack:
    """Take back every chunk that reaches above one of these ends of target partitions, and the chunks without records
    behind them: so the offsets are taken back to the end, and copied again before newer ones. ``receipts`` has at least
    all of these chunks. ``stamp`` is run id and time.

    Raises NotProven.
    """
    key, position, verified = account.key, account.position, account.verified
    known = receipts.of(key, position.generation)
    lost = _lost(known, ends)
    _check(account, receipts, lost, ends)
    offsets = Coverage.of(receipt.range for receipt in lost)
    first, *others = without(account, offsets, lost, account.removed, stamp)
    assert isinstance(first, Position)
    entry = account.removed if account.removed.time else replace(account.removed, run_id=stamp[0], time=stamp[1])
    # One past where our last copy can be that still stands, if no receipt says where it is: offsets of a key rise.
    new_ends = dict(ends)
    for part in (part for receipt in lost for part in receipt.parts):
        new_ends[part.partition] = min(part.first, new_ends.get(part.partition, part.first))
    retried = (part for one in account.retries for part in one.parts)
    standing = ends_of([*(part for one in known if one not in lost for part in one.parts), *retried])
    if position.spread is None:
        number = key.source.partition
        standing[number] = max(standing.get(number, 0), account.others_until)
    return TakenBack(
        offsets=offsets,
        change=Change(key=key, write=(_ending(first, key, {**new_ends, **standing}), *others), delete=tuple(lost)),
        back=Change(
            key=key, write=(position, *([verified] if verified.coverage else []), *account.handled, entry, *lost)
        ),
        standing=Coverage.of(
            receipt.range
            for receipt in lost
            if any(part.until <= ends.get(part.partition, part.until) for part in receipt.parts)
        ),
    )


def in_doubt(key: PartitionKey, position: Position, epochs: Mapping[int, int]) -> dict[int, int]:
    """The ends of our records in those target partitions that have another leader epoch now than when the position was
    written. Only these may have lost our last record: a leader cuts nothing off its own log.
    """
    ends = position.ends(key.source.partition)
    seen = epochs_of(key, position)
    return {number: ends[number] for number, epoch in epochs.items() if ends.get(number) and seen.get(number) != epoch}


def epochs_of(key: PartitionKey, position: Position) -> dict[int, int]:
    """The leader epochs, by target partition, in which our last records were found standing; -1 is not known."""
    return dict(zip(position.ends(key.source.partition), position.target_epochs or (), strict=False))


def seen_in(key: PartitionKey, position: Position, epochs: Mapping[int, int]) -> Position:
    """The position as a session writes it that found our last records standing in these leader epochs, before it
    appended: so later the epoch is the same only if no other leader could have cut anything off since then.
    """
    return replace(
        position, target_epochs=tuple(epochs.get(number, -1) for number in position.ends(key.source.partition))
    )


def proven_lost(
    account: Account, receipts: Receipts, missing: Mapping[int, int], config: Mapping[str, str]
) -> set[int]:
    """Those target partitions in which a record of ours is known to have been the last one before these ends, where
    readers find none now. ``receipts`` has at least those from `Position.receipts_from` on.

    Where others wrote before the first record of the key, its end is theirs. Without receipts, which have expired, that
    is not known for a key with several target partitions, and taken for ours for any other.

    ``config`` is that of the target topic. Compaction keeps the last record of a key, but for a tombstone that is older
    than ``delete.retention.ms``. With several source partitions nothing is known: another one may have a newer record
    of the same key.
    """
    key, position = account.key, account.position
    compacted = "compact" in config.get("cleanup.policy", "")
    if compacted and position.spread is not None:
        return set()
    missing = {number: end for number, end in missing.items() if end != account.others_until}
    entries: list[Receipt | Handled] = [*receipts.of(key, position.generation), *account.retries]
    since = now(int(config.get("delete.retention.ms", 0)) / 1000) if compacted else ""
    ours = target_ends(entry for entry in entries if entry.time > since)
    untold = position.spread is None and receipts.incomplete(key) and not compacted
    return {number for number, end in missing.items() if ours.get(number) == end or (untold and number not in ours)}


def standing_until(parts: Iterable[Part], number: int, end: int, stands: Callable[[Part], bool]) -> int:
    """One past our last record that ``stands`` in a target partition, which ends at ``end``; 0 if none does.

    It walks back by the parts of receipts: a chunk is there as a whole or not at all, so its last record tells.
    """
    ours = (part for part in parts if part.partition == number and part.until <= end)
    return next((part.until for part in sorted(ours, key=lambda part: -part.until) if stands(part)), 0)


def _lost(known: Collection[Receipt], ends: Mapping[int, int]) -> list[Receipt]:
    lost = [
        receipt for receipt in known if any(part.until > ends.get(part.partition, part.until) for part in receipt.parts)
    ]
    if not lost:
        return []
    stands = (receipt.range.until for receipt in known if receipt.parts and receipt not in lost)
    behind = max(min(receipt.range.from_ for receipt in lost), *stands, 0)
    return [*lost, *(receipt for receipt in known if not receipt.parts and receipt.range.from_ >= behind)]


def _check(account: Account, receipts: Receipts, lost: Collection[Receipt], ends: Mapping[int, int]) -> None:
    key, position = account.key, account.position
    if any(receipt.delivery != EXACTLY_ONCE for receipt in lost) or position.delivery != EXACTLY_ONCE:
        raise NotProven("a part of it was copied without transactions")
    proven, ours = ends_of(part for receipt in lost for part in receipt.parts), position.ends(key.source.partition)
    if any(proven.get(number) != ours[number] for number, end in ends.items() if ours[number] > end):
        raise NotProven("the receipts do not say what stood at the end of the target")
    known = receipts.of(key, position.generation)
    if receipts.incomplete(key) and len(lost) == len(known):
        raise NotProven("receipts of a part of it have expired")
    untold = position.coverage.subtract(Coverage.of(receipt.range for receipt in known))
    untold = untold.subtract(account.given_up()).subtract(account.gone())
    # Receipts expire in the order of the copies, which mostly is that of their offsets.
    older = OffsetRange(0, min((receipt.range.from_ for receipt in lost), default=MAX_OFFSET))
    if lost and untold and not (receipts.incomplete(key) and untold.within(older) == untold):
        raise NotProven(f"there is no receipt of {untold}, which may have stood there, too")
    if any(end < account.removed.start(number) for number, end in ends.items()):
        raise NotProven("it ends below the offsets that its retention has removed")
    if position.spread is None and ends.get(key.source.partition, MAX_OFFSET) < account.others_until:
        raise NotProven("it lost records of others, behind which this direction was opened")
    handled = (part for entry in account.handled for part in entry.parts)
    retried = account.decided("retried")
    if any(part.until > ends.get(part.partition, part.until) for part in handled) or any(
        retried.within(receipt.range) for receipt in lost
    ):
        raise NotProven("it has records that were set aside and retried")


def counts(
    key: PartitionKey,
    hidden: Collection[Entry],
    view: LedgerView,
    receipts: Collection[Receipt],
    stands: Callable[[Part], bool],
) -> bool:
    """True if the ``hidden`` entries of the key belong to a transaction that was committed, or may count as committed.

    Kafka ended it everywhere but in the partition of these entries, and a transaction has one outcome: what the
    partitions show in which it ended tells it. If none of them shows it, nobody has seen anything of it, and it may
    count as aborted. ``view`` and ``receipts`` are what is visible; ``stands`` says that of the last record of a part.
    """
    known = view.positions.get(key)
    said = [entry for entry in hidden if isinstance(entry, Receipt)]
    moved = next((entry for entry in hidden if isinstance(entry, Position)), None)
    if moved is None:
        return known is None or all(known.coverage.contains(receipt.range) for receipt in said)
    if known is None or known.generation != moved.generation:
        return True
    gaps = Coverage.of(entry.range for entry in hidden if isinstance(entry, Gap))
    claimed = moved.coverage.subtract(known.coverage).subtract(gaps)
    if claimed.subtract(Coverage.of(receipt.range for receipt in (*receipts, *said))):
        return False
    placed = [entry.parts for entry in hidden if isinstance(entry, Handled | Receipt)]
    # One part is enough: it would be doubled if the entry were dropped. Another one may be hidden, too, or lost since.
    return all(not parts or any(map(stands, parts)) for parts in placed)


def _ending(position: Position, key: PartitionKey, ends: Mapping[int, int]) -> Position:
    if position.spread is None:
        return replace(
            position, target_end=min(position.target_end, ends.get(key.source.partition, position.target_end))
        )
    shorter = tuple(min(end, ends.get(number, end)) for number, end in enumerate(position.spread.ends))
    return replace(position, spread=replace(position.spread, ends=shorter))


def taken_back_since(plan: Plan, view: LedgerView) -> PartitionKey | None:
    """The first partition whose copies were taken back since it was planned: the plan would copy newer offsets before
    them. None if there is none.
    """
    for planned in plan.to_copy:
        position = view.position(planned.key, planned.generation)
        if position and planned.copy and lost_before(position, planned.copy, planned.missed):
            return planned.key
    return None
