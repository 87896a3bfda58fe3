"""Random lives of one partition: whatever happens to the target, nobody says `in sync` where an audit finds a difference.

The target is simulated: a log of our records, markers, aborted records and records of others, with a start and an id.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafka_replication.ledger.entries import Entry, Gap, Ids, Position, Receipt, Removed, Verified
from kafka_replication.ledger.placement import KafkaSegments, Segment
from kafka_replication.ledger.receipts import Receipts, StoredReceipt
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.planning.live import as_compared, plan
from kafka_replication.planning.lost_end import NotProven, proven_lost, standing_until, take_back
from kafka_replication.planning.plan import PartitionPlan, State
from kafka_replication.planning.recopy import Remainder, give_back, is_gone_in_part, to_copy_again
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic
from kafka_replication.planning.target_retention import Retention, expected_end, may_be_gone, removed
from tests.support.target_log import ABORTED, FOREIGN, KEY, MARKER, OURS, REPLICATION, Target, receipt_of

CHUNK = 4


class Life(RuleBasedStateMachine):
    """What the ledger holds, what the target holds, and everything that a run, a person or a stranger does."""

    @initialize(
        harm=st.sampled_from(["none", "none", "none", "truncated", "created again", "stranger"]),
        late=st.sampled_from([0, 0, 3]),
    )
    def open(self, harm: str, late: int) -> None:
        self.harm = harm  # what ends a life: most lives have none of it
        self.target, self.source = Target(), [False] * late  # whether a source offset has a visible record
        self.position = Position(generation=1, ids=Ids("SRC", "s", "t0"), start=0, next_offset=0)
        self.verified: Verified | None = None
        self.gaps: tuple[Gap, ...] = ()
        if late:
            lost = OffsetRange(0, late)
            self.give_up(Coverage.of([lost]), "late")
            self.position = replace(self.position, next_offset=late, coverage=Coverage((lost,)))
        self.noted: Removed | None = None
        self.written = self.kept_from = 0  # the end of the receipts topic, and its log start
        self.receipts: list[StoredReceipt] = []
        self.store(replace(receipt_of(OffsetRange(0, 50), KafkaSegments()), generation=0))

    # --- what the ledger and the snapshot show ---

    @property
    def view(self) -> LedgerView:
        return LedgerView(
            {KEY: self.position},
            {KEY: self.verified} if self.verified else {},
            {KEY: self.gaps},
            removed={KEY: self.noted} if self.noted else {},
        )

    def read(self, since: int = 0) -> Receipts:
        stored = tuple(stored for stored in self.receipts if stored.offset >= since)
        number = KEY.ledger_partition
        starts, ends = {number: self.kept_from}, {number: self.written}
        return Receipts(stored={KEY: stored}, since={KEY: since}, log_starts=starts, ends=ends)

    def snapshot(self) -> Snapshot:
        end = len(self.target.log)
        there = Topic(
            name="orders",
            topic_id=self.target.id,
            partitions={0: PartitionOffsets(self.target.start, end, end)},
            replication_factor=1,
        )
        length = len(self.source)
        source = replace(there, topic_id="s", partitions={0: PartitionOffsets(0, length, length)})
        taken = Snapshot(
            source_cluster="SRC", target_cluster="TGT", source={"orders": source}, target={"orders": there}
        )
        if self.target.id == self.position.ids.target_topic and end > expected_end(self.view[KEY], 0, 1):
            first = self.target.first_foreign(self.position.target_end)
            taken = replace(taken, foreign={} if first is None else {KEY: first})
        ours = self.position.target_end
        if self.target.id == self.position.ids.target_topic and self.target.start < ours:
            if end < ours:
                taken = replace(taken, lost={KEY: frozenset([0])})
            elif not self.target.stands(ours - 1):
                taken = replace(taken, lost={KEY: frozenset(proven_lost(self.view[KEY], self.read(), {0: ours}, {}))})
        if may_be_gone(self.view[KEY], there):
            since = self.noted.receipts_from if self.noted else None
            starts, receipts = {0: self.target.start}, self.read(since or 0)
            gone = removed(self.view[KEY], receipts, starts, Retention(None, None), None, ("r", "t"))
            taken = replace(taken, removed={KEY: gone})
        return taken

    def planned(self) -> PartitionPlan:
        (found,) = plan(REPLICATION, self.snapshot(), self.view, {}).partitions
        return found

    # --- what happens ---

    @rule(records=st.lists(st.booleans(), min_size=1, max_size=9))
    def produce(self, records: list[bool]) -> None:
        self.source += records

    @rule(leaves_aborted=st.booleans())
    def run(self, leaves_aborted: bool) -> None:
        snapshot = self.snapshot()
        self.noted = snapshot.removed.get(KEY, self.noted)
        if self.planned().state is State.TARGET_TRUNCATED:
            self.mend()
        found = self.planned()
        if found.copy:
            if leaves_aborted:
                self.target.log += [(ABORTED, 0), (MARKER, 0)]
            self.copy(found.copy)
        if not found.refused:
            self.read_back()

    @rule(data=st.data())
    def backfill(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, len(self.source)))
        wanted = OffsetRange(first, data.draw(st.integers(first, len(self.source))))
        snapshot = self.snapshot()
        view = as_compared(self.view, snapshot)
        if self.planned().refused or not wanted.span:
            return
        again = to_copy_again(view[KEY], self.read().of(KEY, 1), wanted, 0)
        if again:
            self.give_back(view, again)
        for range_ in self.position.left_of(wanted):
            self.copy(range_)
        for range_ in self.position.left_of(OffsetRange(0, self.position.next_offset)):
            if again.within(range_):
                self.copy(range_)
        self.read_back()

    @precondition(lambda self: self.target.log)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.target.start = data.draw(st.integers(self.target.start, len(self.target.log)))

    @precondition(lambda self: self.harm == "stranger")
    @rule(count=st.integers(1, 3))
    def write_as_a_stranger(self, count: int) -> None:
        self.target.log += [(FOREIGN, 0)] * count

    @precondition(lambda self: self.harm == "truncated" and len(self.target.log) > self.target.start)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        del self.target.log[data.draw(st.integers(self.target.start, len(self.target.log) - 1)) :]

    @precondition(lambda self: self.harm == "truncated" and len(self.target.log) > self.target.start)
    @rule(data=st.data())
    def truncate_while_a_run_is_at_work(self, data: st.DataObject) -> None:
        """It began before that, noticed it when its first records were acknowledged, and aborted them. These and their
        marker may reach as far as what was lost, or further.
        """
        end = len(self.target.log)
        cut = data.draw(st.integers(self.target.start, end - 1))
        del self.target.log[cut:]
        self.target.log += [(ABORTED, 0)] * data.draw(st.integers(1, end - cut + CHUNK)) + [(MARKER, 0)]

    @precondition(lambda self: self.harm == "created again")
    @rule()
    def create_again(self) -> None:
        self.target = Target(id="t1")

    @rule()
    def approve(self) -> None:
        self.give_up(self.planned().missed)

    def give_up(self, offsets: Coverage, kind: str = "unverifiable") -> None:
        for range_ in offsets:
            gap = Gap(
                generation=1,
                kind=kind,
                range=range_,
                reason="r",
                approved_by="a",
                ids=self.position.ids,
                run_id="r",
                time="t",
            )
            self.gaps += (gap,)

    # --- how it is done ---

    def mend(self) -> None:
        """The target lost its end: what cannot be proven to have stood there is left to a person."""
        parts = [part for receipt in self.read().of(KEY, 1) for part in receipt.parts]
        end = standing_until(parts, 0, len(self.target.log), lambda part: self.target.stands(part.until - 1))
        with suppress(NotProven):
            taken = take_back(self.view[KEY], self.read(), {0: end}, ("r", "t"))
            self.receipts = [stored for stored in self.receipts if stored.receipt not in taken.change.delete]
            self.take(taken.change.write)
            for at in range(self.position.target_end, len(self.target.log)):  # the rest of a chunk is aborted
                self.target.log[at] = (ABORTED if self.target.log[at][0] == OURS else self.target.log[at][0], 0)

    def give_back(self, view: LedgerView, again: Coverage) -> None:
        entry = view.removed[KEY]
        cut = next((stored.receipt for stored in self.receipts if is_gone_in_part(stored.receipt, entry)), None)
        _, change = give_back(view[KEY], self.read().of(KEY, 1), again, self.remainders(cut, entry), ("r", "t"))
        self.receipts = [stored for stored in self.receipts if stored.receipt not in change.delete]
        self.take(change.write)

    def take(self, entries: Iterable[Entry]) -> None:
        for one in entries:
            match one:
                case Position():
                    self.position = one
                case Verified():
                    self.verified = one
                case Removed():
                    self.noted = one
                case Receipt():
                    self.store(one)

    def remainders(self, cut: Receipt | None, entry: Removed) -> list[Remainder]:
        if cut is None:
            return []
        assert isinstance(cut.placement, KafkaSegments)
        (segment,) = cut.placement.segments
        visible = [offset for offset in range(cut.range.from_, cut.range.until) if self.source[offset]]
        first = visible[entry.target_start - segment.first]
        kept = replace(segment, first=entry.target_start, count=segment.last + 1 - entry.target_start)
        receipt = replace(
            cut, range=OffsetRange(first, cut.range.until), count=kept.count, placement=KafkaSegments((kept,))
        )
        return [Remainder(cut.range, Coverage.of([OffsetRange(cut.range.from_, first)]), (receipt,))]

    def store(self, receipt: Receipt) -> None:
        self.receipts = [
            stored
            for stored in self.receipts
            if (stored.receipt.generation, stored.receipt.range.from_) != (receipt.generation, receipt.range.from_)
        ]  # the key is the generation and the first offset
        self.receipts.append(StoredReceipt(self.written, receipt))
        self.written += 2

    def copy(self, wanted: OffsetRange) -> None:
        while left := self.position.left_of(wanted):
            self.copy_chunk(OffsetRange(left[0].from_, min(left[0].until, left[0].from_ + CHUNK)))

    def copy_chunk(self, chunk: OffsetRange) -> None:
        visible = [offset for offset in range(chunk.from_, chunk.until) if self.source[offset]]
        first, segments = len(self.target.log), KafkaSegments()
        if visible:
            self.target.log += [*((OURS, offset) for offset in visible), (MARKER, 0)]
            last = first + len(visible) - 1
            segments = KafkaSegments((Segment(partition=0, first=first, last=last, count=len(visible), digest="d"),))
        self.position = self.position.adding(chunk, None, first + len(visible) if visible else 0)
        self.store(replace(receipt_of(chunk, segments), count=len(visible)))

    def read_back(self) -> None:
        """All that can be read back: the records of a pending receipt are there."""
        pending = self.view[KEY].pending()
        equal = [
            stored.receipt.range
            for stored in self.receipts
            if stored.receipt.generation == 1
            and pending.contains(stored.receipt.range)
            and all(segment.first >= self.target.start for segment in stored.receipt.parts)
        ]
        verified = self.view.of(KEY, 1).verified_with(Coverage.of(equal), level="digest", run_id="r", time="t")
        known = verified.coverage.union(self.view.of(KEY, 1).verified_or_waived())
        self.verified = replace(verified, receipts_from=self.read().unverified_from(KEY, 1, known))

    # --- what must hold ---

    @invariant()
    def in_sync_means_that_an_audit_finds_nothing(self) -> None:
        found = self.planned()
        if found.state is State.IN_SYNC:
            assert self.target.id == "t0"
            assert sorted(self.target.ours()) == [offset for offset, there in enumerate(self.source) if there]
            assert self.target.first_foreign(0) is None
            assert not self.position.target_end or self.target.stands(self.position.target_end - 1)
        if not found.refused and not found.missed and not self.gaps and not found.verify:
            missing = {offset for offset in range(self.position.next_offset) if self.source[offset]} - {
                *self.target.ours()
            }
            assert not missing, "nothing explains it, and nobody accepted it"

    @invariant()
    def nothing_is_there_twice(self) -> None:
        if self.target.id == "t0":
            assert len(self.target.ours()) == len({*self.target.ours()})

    @invariant()
    def our_own_ledger_never_contradicts_itself(self) -> None:
        view = as_compared(self.view, self.snapshot())
        assert view[KEY].contradictions() == []
        assert view[KEY].contradictions_in(self.read()) == []

    @invariant()
    def no_number_is_negative(self) -> None:
        found = self.planned()
        assert found.missed.subtract(found.removed).span == 0
        assert self.view[KEY].watermark() <= self.position.next_offset


class Expiring(Life):
    """The same with receipts that expire. Without them nobody can say which copies are gone from the target."""

    @rule(data=st.data())
    def expire_receipts(self, data: st.DataObject) -> None:
        self.kept_from = data.draw(st.integers(self.kept_from, self.written))
        self.receipts = [stored for stored in self.receipts if stored.offset >= self.kept_from]

    @rule()
    def approve_what_has_no_receipt(self) -> None:
        self.give_up(self.without_receipt())

    def without_receipt(self) -> Coverage:
        known = Coverage.of(stored.receipt.range for stored in self.receipts if stored.receipt.generation == 1)
        return self.view[KEY].pending().subtract(known)

    @rule(records=st.integers(1, 9))
    def run_that_dies_before_it_verifies(self, records: int) -> None:
        self.source += [True] * records
        self.noted = self.snapshot().removed.get(KEY, self.noted)
        if copied := self.planned().copy:
            self.copy(copied)

    def read_back(self) -> None:
        """Nothing is verified until a person has given up what has no receipt."""
        if not self.without_receipt():
            super().read_back()

    def in_sync_means_that_an_audit_finds_nothing(self) -> None: ...


class Drawn:
    """Draws these values, one after the other."""

    def __init__(self, *values: int) -> None:
        self._values = list(values)

    def draw(self, _: object) -> int:
        return self._values.pop(0)


def test_a_chunk_without_records_behind_a_lost_end_lets_nothing_newer_come_first() -> None:
    life = Life()
    life.open(harm="truncated", late=0)
    for visible in (True, True, False):
        life.produce(records=[visible])
        life.run(leaves_aborted=False)
    life.truncate(data=cast(st.DataObject, Drawn(2)))
    life.produce(records=[True])
    life.run(leaves_aborted=False)
    assert life.target.ours() == [0, 1, 3]


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
Expiring.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
test_life = Life.TestCase
test_life_with_receipts_that_expire = Expiring.TestCase
