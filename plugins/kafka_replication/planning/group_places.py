"""Translates the committed offset of a consumer group: where the group goes on in the target partition. Pure.

A committed offset means that everything before it is done. Its translation is the target offset behind the last record
before it that is on the target. Receipts say where that is, and the source is not asked: what it has compacted since
would be counted wrongly, also too late, which skips records.

No record at or behind the committed offset lies below its translation, whatever is not known. So nothing is skipped.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import accumulate

from kafka_replication.ledger.account import Account
from kafka_replication.ledger.entries import Gap, Receipt
from kafka_replication.ledger.offset_map import OffsetMap
from kafka_replication.ledger.receipts import Receipts, committed
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange


@dataclass(frozen=True, slots=True)
class Translated:
    """The place of a group in one target partition. It reads at most ``again`` records that it has read before; 0: the
    place is exact. ``why`` says why it is not.
    """

    offset: int
    again: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """``count`` records of the source offsets ``range``, at ``places`` of the target, in their order: of a receipt, or
    returned ones. Not ``told``: which offsets and which places have a record is not known, and there may be fewer.
    """

    range: OffsetRange
    places: Coverage
    count: int
    _: KW_ONLY
    map: OffsetMap | None = None
    told: bool = True

    @classmethod
    def of(cls, receipt: Receipt) -> _Chunk:
        places = Coverage.of(range_ for part in receipt.parts for range_ in part.offsets)
        told = receipt.copied == receipt.count  # else a transform made several records of one
        return cls(receipt.range, places, receipt.count, map=receipt.offset_map, told=told)

    @classmethod
    def of_returned(cls, gap: Gap) -> Iterator[_Chunk]:
        """Of the records that came from the target, in their order."""
        runs = gap.returned.places.runs if gap.returned else ()
        source, target = gap.range.from_, 0
        for number, run in enumerate(runs):
            is_whole = number or run.source == source  # the first ones are left out where there are many
            if again := run.again if is_whole else run.source - source:
                between = OffsetRange(source, run.source), Coverage.of([OffsetRange(target, run.target)])
                yield cls(*between, again, told=False)
            source, target = run.source + run.count, run.target + run.count
            if run.count:
                yield cls(OffsetRange(run.source, source), Coverage.of([OffsetRange(run.target, target)]), run.count)

    @property
    def first(self) -> int:
        return self.places.ranges[0].from_

    @property
    def until(self) -> int:
        return self.places.ranges[-1].until

    def before(self, offset: int) -> tuple[int, int]:
        """The least and the most records that it has before this source offset."""
        range_, count = self.range, self.count
        if self.map is not None:
            return self.map.before(range_.from_, offset)
        if not self.told:
            return (count, count) if offset >= range_.until else (0, count)
        return max(0, count - (range_.until - offset)), min(count, offset - range_.from_)

    def place(self, records: int) -> int:
        """The least target offset that has so many of its records before it."""
        if not records:
            return self.first
        if records == self.count and not self.told:
            return self.until
        for range_ in self.places:
            if records <= range_.span:
                return range_.from_ + records
            records -= range_.span
        return self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlaces:
    """Translates offsets of one source partition. ``log`` has the offsets that the target partition has now."""

    account: Account
    log: OffsetRange
    ends: bool  # nothing comes to the target any more that is not there
    _chunks: Sequence[_Chunk]  # that have records, in source order
    _ends: Sequence[int]  # one past the highest target offset of the chunks up to this one
    _firsts: Sequence[int]  # the lowest target offset of this chunk and of those behind it
    _told: Coverage  # source offsets of which is known where their records are, or that they have none
    _late: dict[int, int] = field(default_factory=dict)  # source offsets of records that were retried: their place

    @classmethod
    def of(cls, account: Account, receipts: Receipts, log: OffsetRange, *, ends: bool = False) -> GroupPlaces:
        """``receipts`` has those of the partition, as far as they are kept. ``ends``: the source is given up."""
        position = account.position
        own = committed(receipts.of(account.key, position.generation), position.coverage)
        chunks = [*map(_Chunk.of, own), *(one for gap in account.gaps for one in _Chunk.of_returned(gap))]
        chunks = sorted((one for one in chunks if one.places), key=lambda chunk: chunk.range.from_)
        lowest = accumulate((chunk.first for chunk in reversed(chunks)), min)
        return cls(
            account=account,
            log=log,
            ends=ends or account.position.sealed is not None,
            _chunks=chunks,
            _ends=list(accumulate((chunk.until for chunk in chunks), max)),
            _firsts=list(lowest)[::-1],
            _told=Coverage.of(receipt.range for receipt in own).union(account.given_up()).union(account.gone()),
            _late={
                offset: part.first  # the lowest place of the records of one decision
                for entry in account.retries
                for part in entry.parts
                for range_ in entry.offsets
                for offset in range(range_.from_, range_.until)
            },
        )

    def translate(self, asked: int) -> Translated:
        """The place that stands for this committed offset. Never ahead of what is verified."""
        start, adopted = self.account.position.start, self.account.position.adopted
        if adopted is not None and asked < start:
            return self._copied_by_another_tool(asked, adopted.target_until)
        offset = min(asked, max(self.account.watermark(), start))
        ahead = OffsetRange(offset, max(offset, asked))
        again = self.account.pending().within(ahead).span if self.ends else ahead.span
        reasons = [(again, f"source offsets from {offset} on are not verified yet")]
        if self.account.position.coverage.within(OffsetRange(offset, MAX_OFFSET)).subtract(self._told):
            # Copies of this source offset or later ones lie at places that no receipt tells. Receipts expire in the
            # order of their writing: these records may lie below all that is known.
            reasons.append((max(0, offset - start), "the receipts of some offsets behind it have expired"))
            place = self.log.from_
        else:
            place, unsure = self._known(offset)
            reasons.append((unsure, "its receipt does not say which offsets have records"))
            reasons.append((self._again(place, offset), "some records were copied later than those behind them"))
        why = [reason for number, reason in reasons if number]
        if asked < start:
            why.append(f"source offsets before {start} are not copied (start_from)")
        return Translated(max(place, self.log.from_), sum(number for number, _ in reasons), "; ".join(why))

    def beside(self, asked: int, there: int | None) -> Translated:
        """The same for a group that has committed ``there`` on the target; None: nothing. What it has not read of the
        records that only the target had when the direction was turned around is not passed either.
        """
        found, turn = self.translate(asked), self.account.turn
        surplus, read = turn.surplus if turn and not turn.aside else Coverage(), there or 0
        unread = next((max(range_.from_, read) for range_ in surplus if read < range_.until), None)
        if unread is None or unread >= found.offset:
            return found
        passed = OffsetRange(unread, found.offset)
        why = "records that only the target had were not read by this group"
        again = found.again + passed.span - surplus.within(passed).span
        return Translated(unread, again, f"{found.why}; {why}" if found.why else why)

    def _copied_by_another_tool(self, asked: int, until: int) -> Translated:
        """No receipt tells where these copies are, but some of them were compared. ``until`` is where they end."""
        start, places = self.account.position.start, self.account.position.adopted_places
        if places is not None and (run := places.run(asked)) is not None:
            place, again = run.place(asked), run.again
            why = "another tool copied these records, some of them more than once"
        else:
            place, again = self.log.from_, until
            why = f"source offsets before {start} were copied by another tool"
        place = max(place, self.log.from_)
        again = min(again, max(0, until - place))
        return Translated(place, again, why if again else "")

    def _known(self, offset: int) -> tuple[int, int]:
        """The target offset behind the records before this source offset, or before one that is not, if that is lower;
        and how many records of their chunk may lie behind it all the same.
        """
        number = bisect_left(self._chunks, offset, key=lambda chunk: chunk.range.from_) - 1
        behind = self._ends[number - 1] if number > 0 else None
        # Behind our last record are perhaps those of others, and ours that come next: none of them may be passed.
        end = min(self.log.until, self.account.position.target_end)
        lowest = min((place for record, place in self._late.items() if record >= offset), default=end)
        if number + 1 < len(self._chunks):
            lowest = min(lowest, self._firsts[number + 1])
        if number < 0:
            return lowest, 0
        chunk = self._chunks[number]
        least, most = chunk.before(min(offset, chunk.range.until))
        if least < chunk.count:
            lowest = min(lowest, chunk.place(least))
        if least or behind is None:
            behind = max(behind or 0, chunk.place(least))
        place = min(behind, lowest)
        unsure = most - (least if place >= chunk.place(least) else 0)
        surplus = chunk.places.span - chunk.count if chunk.told else 0  # without transactions: places without a record
        return place, unsure + (surplus if offset < chunk.range.until else 0)

    def _again(self, place: int, offset: int) -> int:
        """The number of records at or behind this place that are of whole chunks before this source offset, or that
        were retried.
        """
        again = sum(late >= place for record, late in self._late.items() if record < offset)
        number = bisect_right(self._chunks, offset, key=lambda chunk: chunk.range.until) - 1
        while number >= 0 and self._ends[number] > place:
            chunk = self._chunks[number]
            again += chunk.count if chunk.until > place else 0
            number -= 1
        return again
