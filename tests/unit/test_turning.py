"""A replication that is turned around: each record is on each side once, and no place skips what was not read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_replication.ledger.account import Account, Change
from kafka_replication.ledger.codec import decode, encode
from kafka_replication.ledger.entries import Gap, Ids, Position, Receipt, Seal
from kafka_replication.ledger.receipts import Receipts, StoredReceipt
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning.group_places import GroupPlaces
from kafka_replication.planning.turning import Stamp, is_behind, nothing_copied_since, surplus_of, turned
from tests.unit.test_group_places import IDS, World, receipt_of, worlds

BACK = PartitionKey("back", TopicPartition("t", 0), "t")
STAMP = Stamp(by="ann", reason="", run_id="turn", time="2030-01-01T00:00:00Z")


def sealed(position: Position, end: int, run_id: str = "seal") -> Position:
    seal = Seal(why="failover", by="ann", reason="", target_until=end, run_id=run_id, time="2030-01-01T00:00:00Z")
    return replace(position, sealed=seal)


def view_of(change: Change, before: LedgerView) -> LedgerView:
    gap, position = change.write
    assert isinstance(gap, Gap) and isinstance(position, Position)
    gap, position = decode(Gap, encode(gap)), decode(Position, encode(position))
    gaps = {one.numbers: one for one in (*before.gaps.get(change.key, ()), gap)}  # as the ledger's record keys do
    return LedgerView({change.key: position}, {}, {change.key: tuple(gaps.values())})


def receipts_of(key: PartitionKey, *receipts: Receipt) -> Receipts:
    stored = tuple(StoredReceipt(number, receipt) for number, receipt in enumerate(receipts))
    return Receipts(stored={key: stored}, since={key: 0}, log_starts={0: 0}, ends={0: 99})


@settings(max_examples=300)
@given(worlds(), st.integers(0, 80))
def test_places_of_returned_records(world: World, offset: int) -> None:
    """Of a copy in any order, with holes, retried records and expired receipts: who has read it goes on at the source."""
    target_end = world.account.position.target_end
    other = replace(world.account, position=sealed(world.account.position, target_end))
    change = turned(BACK, LedgerView(), Ids("T", "t", "s"), other, world.receipts, world.end + 3, STAMP)
    account = view_of(change, LedgerView())[BACK]
    assert is_behind(account, other) and nothing_copied_since(account)
    offset = min(offset, target_end)
    found = GroupPlaces.of(account, receipts_of(BACK), OffsetRange(0, world.end + 3)).translate(offset)
    skipped = {record for record, place in world.places.items() if place >= offset and record < found.offset}
    again = {record for record, place in world.places.items() if place < offset and record >= found.offset}
    assert not skipped, (offset, found)
    assert len(again) <= found.again, (offset, found, again)
    if world.orderly:
        assert not found.again, found


@dataclass
class Side:
    """The log of one side, its ledger of the direction that fills it, and what a group there has read."""

    log: list[int | None] = field(default_factory=list)  # the numbers of records; None: no record
    view: LedgerView = field(default_factory=LedgerView)
    receipts: list[Receipt] = field(default_factory=list)

    def place(self, record: int) -> int:
        return self.log.index(record)


KEYS = {"there": PartitionKey("there", TopicPartition("t", 0), "t"), "back": BACK}


@dataclass
class Model:
    """Two clusters; ``there`` copies from a to b, ``back`` from b to a. One side has the producers."""

    a: Side = field(default_factory=Side)
    b: Side = field(default_factory=Side)
    number: int = 0
    seals: int = 0

    def sides(self, direction: str) -> tuple[Side, Side]:
        return (self.a, self.b) if direction == "there" else (self.b, self.a)

    def account(self, direction: str) -> Account | None:
        view = self.sides(direction)[1].view
        return view[KEYS[direction]] if KEYS[direction] in view.positions else None

    def produce(self, side: Side, records: int) -> None:
        for _ in range(records):
            side.log.append(self.number)
            self.number += 1
        side.log.append(None)

    def open(self, direction: str) -> None:
        key = KEYS[direction]
        position = Position(generation=1, ids=IDS, start=0, next_offset=0)
        self.sides(direction)[1].view = LedgerView({key: position}, {}, {key: ()})

    def copy(self, direction: str, most: int) -> None:
        """The next chunk, as a copier at this position copies it."""
        key, (source, target) = KEYS[direction], self.sides(direction)
        position = target.view.positions[key]
        assert not position.sealed
        assert position.target_end <= len(target.log)
        assert not any(record is not None for record in target.log[position.target_end :]), "foreign records"
        left = position.left_of(OffsetRange(position.next_offset, len(source.log)))
        if not left:
            return
        range_ = OffsetRange(left[0].from_, min(left[0].until, left[0].from_ + most))
        offsets = [offset for offset in range(range_.from_, range_.until) if source.log[offset] is not None]
        target.receipts.append(receipt_of(range_, len(target.log), offsets))
        target.log += [source.log[offset] for offset in offsets]
        moved = position.adding(range_, None, len(target.log) if offsets else 0)
        target.log.append(None)
        target.view = replace(target.view, positions={key: moved})

    def seal(self, direction: str) -> None:
        key, (_, target) = KEYS[direction], self.sides(direction)
        self.seals += 1
        position = sealed(target.view.positions[key], len(target.log), f"seal {self.seals}")
        target.view = replace(target.view, positions={key: position})

    def turn(self, direction: str) -> None:
        """Open this direction behind the seal of the other one."""
        other = "back" if direction == "there" else "there"
        there = self.account(other)
        assert there is not None
        target = self.sides(direction)[1]
        receipts = receipts_of(KEYS[other], *self.sides(other)[1].receipts)
        change = turned(KEYS[direction], target.view, IDS, there, receipts, len(target.log), STAMP)
        target.view = view_of(change, target.view)

    def group_moves(self, direction: str, offset: int, read: set[int]) -> None:
        """A group that has read everything before this offset of the source, and these records, goes on at the target."""
        source, target = self.sides(direction)
        account = self.account(direction)
        assert account is not None
        verified = replace(account.verified, coverage=account.position.coverage.subtract(account.given_up()))
        account = replace(account, verified=verified)
        places = GroupPlaces.of(
            account, receipts_of(KEYS[direction], *target.receipts), OffsetRange(0, len(target.log))
        )
        found = places.translate(offset)
        on_source = {record for record in source.log if record is not None}
        skipped = {record for record in target.log[: found.offset] if record is not None and record in on_source - read}
        again = [record for record in target.log[found.offset :] if record in read]
        assert not skipped, (direction, offset, found, skipped)
        assert len(again) <= found.again, (direction, offset, found, again)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_there_and_back_and_there_again(data: st.DataObject) -> None:
    """Sealed at any moment, with records that one side only has, several times: everything is on both sides once."""
    model, active = Model(), "there"
    model.open(active)
    for _ in range(data.draw(st.integers(1, 5))):
        source, target = model.sides(active)
        for _ in range(data.draw(st.integers(0, 3))):
            model.produce(source, data.draw(st.integers(0, 4)))
            for _ in range(data.draw(st.integers(0, 2))):
                model.copy(active, data.draw(st.integers(1, 6)))
            offset = data.draw(st.integers(0, len(source.log)))
            model.group_moves(active, offset, {record for record in source.log[:offset] if record is not None})
        model.seal(active)
        model.produce(target, data.draw(st.integers(0, 3)))
        active = "back" if active == "there" else "there"
        model.turn(active)
        if data.draw(st.booleans()):
            model.turn(active)  # once more, after a crash
    for _ in range(3):  # lag zero, a cut-over, and what the other side has more
        for _ in range(200):
            model.copy(active, 5)
        source, target = model.sides(active)
        there = model.account(active)
        assert there is not None and not surplus_of(there, len(source.log))
        model.seal(active)
        active = "back" if active == "there" else "there"
        model.turn(active)
    everything = list(range(model.number))
    for side in (model.a, model.b):
        assert sorted(record for record in side.log if record is not None) == everything


def test_coverage_of_what_only_the_source_has() -> None:
    model = Model()
    model.open("there")
    model.produce(model.a, 4)
    model.copy("there", 5)
    model.seal("there")
    model.produce(model.a, 2)
    model.produce(model.b, 3)
    model.turn("back")
    back = model.account("back")
    assert back is not None and back.turn is not None
    assert back.turn.surplus == Coverage.of([OffsetRange(5, 8)])
    assert back.position.next_offset == 4  # behind the four copies on b
    model.copy("back", 100)
    assert [record for record in model.a.log if record is not None] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    model.seal("back")
    model.turn("there")
    model.copy("there", 100)
    assert [record for record in model.b.log if record is not None] == [0, 1, 2, 3, 6, 7, 8, 4, 5]
