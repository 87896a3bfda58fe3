"""Turns a replication around: opens one direction behind the seal of the other one. Pure.

The records of a sealed direction are those of its target up to its position. For the other direction they have
returned: it passes them, and copies what others wrote behind them. Its own target has everything already that it had
then, also what the sealed direction never copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from kafka_replication.ledger.account import Account, Change
from kafka_replication.ledger.entries import Gap, Ids, Position, Receipt, Returned
from kafka_replication.ledger.gap import ASIDE, RETURNED
from kafka_replication.ledger.offset_map import AdoptedPlaces, AdoptedRun
from kafka_replication.ledger.receipts import Receipts, committed
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey

FAILBACK: Final = "failback"  # why the other direction is sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The person who turns the replication around, the reason, the run, and the time (RFC 3339 UTC)."""

    by: str
    reason: str
    run_id: str
    time: str


def is_behind(account: Account | None, other: Account) -> bool:
    """True if this direction was opened behind the present seal of the other one, which is sealed."""
    turn, seal = account.turn if account else None, other.position.sealed
    return turn is not None and seal is not None and turn.seal == seal.id


def nothing_copied_since(account: Account) -> bool:
    """True if the direction has written nothing to its target since its latest turn."""
    return account.position.target_end == account.others_until


def surplus_of(account: Account, source_end: int) -> Coverage:
    """The source offsets that this direction has not copied."""
    position = account.position
    return Coverage(position.left_of(OffsetRange(min(position.start, source_end), source_end)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One partition of both directions, how far it is turned around: of the first direction, and of the ``other`` one;
    None where it has copied nothing yet.
    """

    key: PartitionKey
    other_key: PartitionKey
    account: Account | None
    other: Account | None

    @property
    def is_done(self) -> bool:
        """True if the first direction goes on behind the seal of the other one."""
        account, other = self.account, self.other
        return account is not None and not account.position.sealed and other is not None and is_behind(account, other)

    @property
    def is_open(self) -> bool:
        """True if the other direction was opened behind the seal of the first one, or by itself."""
        return self.other is not None and (self.account is None or is_behind(self.other, self.account))

    @property
    def is_back(self) -> bool:
        """True if the other direction has copied everything, and was sealed."""
        seal = self.other.position.sealed if self.is_open and self.other else None
        return seal is not None and seal.why == FAILBACK

    @property
    def begun(self) -> Returned | None:
        """The turn behind the present seal, if the other direction has copied something since."""
        other = self.other if self.is_open and self.account else None
        return other.turn if other and not nothing_copied_since(other) else None

    def surplus(self, source_end: int) -> Coverage:
        """The source offsets that were never copied, without those that came back."""
        if self.account is None:
            return Coverage()
        return turn.surplus if (turn := self.begun) else surplus_of(self.account, source_end)

    @property
    def sealed_at(self) -> int:
        """The end of the target when the first direction was sealed, or else of what it has copied."""
        position = self.account.position if self.account else None
        return 0 if position is None else position.sealed.target_until if position.sealed else position.target_end


def turned(
    key: PartitionKey,
    view: LedgerView,
    ids: Ids,
    other: Account,
    receipts: Receipts,
    target_end: int,
    stamp: Stamp,
    aside: str = "",
) -> Change:
    """Open the direction ``key`` behind the seal of the ``other`` one. ``view`` is of its own ledger, ``receipts`` has
    those of the other direction. ``target_end`` is the end of its target, where nobody writes any more.

    Once more behind the same seal moves its end, as long as it has copied nothing. ``aside`` is the topic that has what
    only the target has; what the other direction has found so is passed.
    """
    seal, before = other.position.sealed, view[key] if key in view.positions else None
    assert seal is not None
    position = before.position if before else Position(generation=1, ids=ids, start=0, next_offset=0)
    from_ = position.target_end if before else 0
    if before and before.turn and is_behind(before, other):
        from_ = before.turn.target.from_
    returned = OffsetRange(other.turn.target.until if other.turn else 0, other.position.target_end)
    gap = Gap(
        generation=position.generation,
        kind=RETURNED,
        range=returned,
        reason=stamp.reason or f"sealed {seal}",
        approved_by=stamp.by,
        ids=position.ids,
        run_id=stamp.run_id,
        time=stamp.time,
        returned=Returned(
            seal=seal.id,
            target=OffsetRange(from_, target_end),
            surplus=surplus_of(other, target_end),
            places=places_of(other, receipts, returned),
            aside=aside,
        ),
    )
    passed = list[Gap]()
    if other.turn and other.turn.aside:
        why = f"copied to {other.turn.aside} instead"
        apart = replace(gap, kind=ASIDE, reason=why, returned=None)
        passed = [replace(apart, range=range_) for range_ in other.turn.surplus]
    for one in (gap, *passed):
        position = position.adding(one.range, None, 0)
    position = replace(position, sealed=None, followed_by="", target_end=target_end)
    return Change(key=key, write=(gap, *passed, position))


def foreseen(change: Change, view: LedgerView, new: OffsetRange) -> LedgerView:
    """The ``view`` with the direction that ``change`` opens, as it is when it has copied the ``new`` source
    offsets, if each of them has a record. For a dry run: then it is known where groups would go on.
    """
    gap, *passed, position = change.write
    assert isinstance(gap, Gap) and isinstance(position, Position) and gap.returned is not None
    runs = [*gap.returned.places.runs, AdoptedRun(new.from_, position.target_end, new.span, 0)]
    returned = replace(gap.returned, places=AdoptedPlaces.of(runs) or gap.returned.places)
    gap = replace(gap, range=OffsetRange(gap.range.from_, new.until), returned=returned)
    position = position.adding(gap.range, None, position.target_end + new.span)
    before = (one for one in view.gaps.get(change.key, ()) if one.numbers != gap.numbers)
    gaps = (*before, gap, *(one for one in passed if isinstance(one, Gap)))
    return replace(view, positions={**view.positions, change.key: position}, gaps={**view.gaps, change.key: gaps})


@dataclass(frozen=True, slots=True)
class _Copied:
    """Records of one receipt, or of one that was retried: of source offsets, at places. ``runs`` are both in their
    order, with the number of records; None: not known.
    """

    source: OffsetRange
    places: OffsetRange
    count: int
    runs: Sequence[tuple[int, int, int]] | None  # place, source offset, records


def places_of(account: Account, receipts: Receipts, returned: OffsetRange) -> AdoptedPlaces:
    """The source offsets of the records that lie in these target offsets, for who reads them there and goes on at the
    source. ``again`` of a run: the most records between the run before and this one, of which it is not known.
    """
    copied = sorted(_copied(account, receipts, returned), key=lambda one: one.places)
    # Behind a record that was copied later than newer ones, offsets rise on both sides.
    highest = list(accumulate((one.source.until for one in copied), max))
    lowest = list(accumulate((one.source.from_ for one in reversed(copied)), min))[::-1]
    first = max((n + 2 for n in range(len(copied) - 1) if highest[n] > lowest[n + 1]), default=0)
    unknown = sum(one.count for one in copied[:first])
    source, target = returned.from_, min(lowest, default=account.position.next_offset)
    runs = [AdoptedRun(source, target, 0, 0)]
    for one in copied[first:]:
        if one.runs is None:
            unknown += one.count
            continue
        for place, offset, count in one.runs:
            runs.append(AdoptedRun(place, offset, count, unknown))
            source, target, unknown = place + count, offset + count, 0
    runs.append(AdoptedRun(returned.until, max(account.position.next_offset, target), 0, unknown))
    places = AdoptedPlaces.of(_joined(runs))
    assert places is not None  # one run has room
    return places


def _joined(runs: Sequence[AdoptedRun]) -> list[AdoptedRun]:
    """With one run instead of two where nothing lies between them on either side."""
    joined = list[AdoptedRun]()
    for run in runs:
        last = joined[-1] if joined else None
        if last and not run.again and (last.source + last.count, last.target + last.count) == (run.source, run.target):
            joined[-1] = replace(last, count=last.count + run.count)
        else:
            joined.append(run)
    return joined


def _copied(account: Account, receipts: Receipts, returned: OffsetRange) -> Iterator[_Copied]:
    own = committed(receipts.of(account.key, account.position.generation), account.position.coverage)
    expired = account.position.coverage.subtract(account.given_up())
    expired = expired.subtract(Coverage.of(receipt.range for receipt in own))
    known = [part.first for receipt in own for part in receipt.parts if part.until > returned.from_]
    if expired and (first := min(known, default=returned.until)) > returned.from_:  # in the order of their writing
        source = OffsetRange(expired.ranges[0].from_, expired.ranges[-1].until)
        yield _Copied(source, OffsetRange(returned.from_, first), min(expired.span, first - returned.from_), None)
    for receipt in own:
        places = Coverage.of(range_ for part in receipt.parts for range_ in part.offsets)
        if not (places := places.within(returned)):
            continue
        yield _Copied(
            receipt.range,
            OffsetRange(places.ranges[0].from_, places.ranges[-1].until),
            receipt.count,
            _runs(receipt, places),
        )
    for entry in account.retries:
        for part in entry.parts:
            places, offsets = Coverage.of(part.offsets).within(returned), entry.offsets.ranges
            if places:
                at = OffsetRange(places.ranges[0].from_, places.ranges[-1].until)
                yield _Copied(OffsetRange(offsets[0].from_, offsets[-1].until), at, places.span, None)


def _runs(receipt: Receipt, places: Coverage) -> Sequence[tuple[int, int, int]] | None:
    offsets: Iterator[OffsetRange] | None = iter([receipt.range])
    if receipt.offset_map is not None:
        offsets = receipt.offset_map.runs(receipt.range)
    elif receipt.count != receipt.range.span:
        offsets = None
    if offsets is None or receipt.copied != receipt.count or places.span != receipt.count:
        return None
    runs, targets = list[tuple[int, int, int]](), list(reversed(places.ranges))
    for range_ in offsets:
        from_ = range_.from_
        while from_ < range_.until:
            place = targets.pop()
            count = min(place.span, range_.until - from_)
            runs.append((place.from_, from_, count))
            from_ += count
            if count < place.span:
                targets.append(OffsetRange(place.from_ + count, place.until))
    return runs
