"""The translation of a group's committed offset: nothing is skipped, and no more is read again than it says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_replication.ledger.account import Account
from kafka_replication.ledger.entries import Adopted, Gap, Handled, Ids, Position, Receipt, Removed, Verified
from kafka_replication.ledger.offset_map import AdoptedPlaces, AdoptedRun, WrittenOffsets
from kafka_replication.ledger.placement import KafkaSegments, Segment
from kafka_replication.ledger.receipts import Receipts, StoredReceipt
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning.group_places import GroupPlaces, Translated

KEY = PartitionKey("r", TopicPartition("t", 0), "t")
IDS = Ids("S", "s", "t")
ADOPTED = Adopted(
    source="MirrorMaker 2",
    proof="tail",
    target_from=20,
    target_until=100,
    compared=80,
    doubles=0,
    missing=0,
    run_id="run",
    time="2030-01-01T00:00:00Z",
)


@dataclass
class World:
    """One partition and its copy: where each source record lies on the target, and the ledger."""

    places: dict[int, int]
    account: Account
    receipts: Receipts
    log: OffsetRange
    orderly: bool = True  # in the order of the source, with all receipts and maps
    end: int = 0  # of the source

    def translate(self, offset: int) -> Translated:
        return GroupPlaces.of(self.account, self.receipts, self.log).translate(offset)

    def check(self, offset: int) -> Translated:
        found = self.translate(offset)
        there = {record: place for record, place in self.places.items() if place in self.log}
        skipped = {record: place for record, place in there.items() if record >= offset and place < found.offset}
        again = [record for record, place in there.items() if record < offset and place >= found.offset]
        not_yet = max(0, offset - self.account.watermark())
        assert not skipped, (offset, found, skipped)
        assert len(again) <= found.again - not_yet or len(again) <= found.again, (offset, found, again)
        assert bool(found.again) <= bool(found.why)
        assert self.log.from_ <= found.offset <= self.log.until
        return found


def receipt_of(range_: OffsetRange, first: int, written: list[int], *, with_map: bool = True) -> Receipt:
    offsets = WrittenOffsets()
    offsets.add(written)
    segment = Segment(partition=0, first=first, last=first + len(written) - 1, count=len(written), digest="d")
    return Receipt(
        generation=1,
        range=range_,
        count=len(written),
        bytes=0,
        digest="d",
        digest_kind="xxh3_128/1",
        engine="record/1",
        placement=KafkaSegments((segment,) if written else ()),
        ids=IDS,
        run_id="run",
        time="2030-01-01T00:00:00Z",
        offset_map=offsets.map(range_.from_, range_.until) if with_map else None,
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    start = next_ = draw(st.integers(0, 5))
    chunks = list[tuple[OffsetRange, list[int]]]()
    for span in draw(st.lists(st.integers(1, 12), max_size=6)):
        kept = draw(st.lists(st.booleans(), min_size=span, max_size=span))
        chunks.append((OffsetRange(next_, next_ + span), [next_ + n for n, keep in enumerate(kept) if keep]))
        next_ += span
    order = draw(st.one_of(st.just(range(len(chunks))), st.permutations(range(len(chunks)))))
    with_map, expired = draw(st.booleans()), draw(st.integers(0, len(chunks)))
    expired = expired if draw(st.booleans()) else 0
    target = log_start = draw(st.integers(0, 3))
    places, stored = dict[int, int](), list[StoredReceipt]()
    handled, retried_after = tuple[Handled, ...](), draw(st.integers(0, 8))
    for number, index in enumerate(order):
        range_, written = chunks[index]
        receipt = receipt_of(range_, target, written, with_map=with_map)
        if number >= expired:  # the oldest expire first
            stored.append(StoredReceipt(number, receipt))
        places |= {record: target + n for n, record in enumerate(written)}
        target += len(written) + 1  # the marker
        holes = [offset for offset in range(range_.from_, range_.until) if offset not in places]
        if number == retried_after and holes:
            record = draw(st.sampled_from(holes))
            placement = KafkaSegments((Segment(partition=0, first=target, last=target, count=1, digest="d"),))
            handled = (retried(Coverage.of([OffsetRange(record, record + 1)]), placement),)
            places[record], target = target, target + 2
    coverage = Coverage.of(range_ for range_, _ in chunks)
    verified = draw(st.sampled_from([next_, *(range_.from_ for range_, _ in chunks)]))
    account = Account(
        key=KEY,
        position=Position(generation=1, ids=IDS, start=start, next_offset=next_, coverage=coverage, target_end=target),
        verified=Verified(generation=1, coverage=coverage.within(OffsetRange(0, verified))),
        removed=Removed(generation=1),
        handled=handled,
    )
    log = OffsetRange(draw(st.integers(0, target)) if draw(st.booleans()) else log_start, target)
    orderly = list(order) == sorted(order) and with_map and not expired and not handled
    receipts = Receipts(stored={KEY: tuple(stored)}, since={KEY: 0}, log_starts={0: 0}, ends={0: 99})
    return World(places, account, receipts, log, orderly, next_)


def retried(aside: Coverage, placement: KafkaSegments) -> Handled:
    return Handled(
        generation=1,
        state="retried",
        quarantined=aside,
        skipped=Coverage(),
        ids=IDS,
        by="ann",
        reason="",
        run_id="run",
        time="2030-01-01T00:00:00Z",
        count=1,
        digest="d",
        digest_kind="xxh3_128/1",
        placement=placement,
    )


@settings(max_examples=300)
@given(worlds(), st.integers(0, 80))
def test_nothing_is_skipped_and_no_more_is_read_again_than_said(world: World, offset: int) -> None:
    found = world.check(min(offset, world.end))
    if world.orderly and min(offset, world.end) <= world.account.watermark():
        assert found.again == 0


def one_chunk(written: list[int], until: int, **options: bool) -> World:
    receipt = receipt_of(OffsetRange(0, until), 100, written, **options)
    coverage = Coverage.of([OffsetRange(0, until)])
    account = Account(
        key=KEY,
        position=Position(generation=1, ids=IDS, start=0, next_offset=until, coverage=coverage, target_end=200),
        verified=Verified(generation=1, coverage=coverage),
        removed=Removed(generation=1),
    )
    receipts = Receipts(stored={KEY: (StoredReceipt(0, receipt),)}, since={KEY: 0}, log_starts={0: 0}, ends={0: 1})
    places = {record: 100 + number for number, record in enumerate(written)}
    return World(places, account, receipts, OffsetRange(0, 100 + len(written) + 1), end=until)


def test_it_is_behind_the_last_record_before_it() -> None:
    world = one_chunk([0, 1, 2, 5, 6, 9], 10)
    assert [world.translate(offset).offset for offset in range(11)] == [
        *(100, 101, 102, 103, 103, 103, 104, 105, 105, 105, 106)
    ]
    assert all(not world.translate(offset).again for offset in range(11))


def test_a_receipt_without_a_map_gives_the_nearest_earlier_place() -> None:
    world = one_chunk([0, 1, 2, 5, 6, 9], 10, with_map=False)
    assert world.translate(4) == Translated(100, 4, "its receipt does not say which offsets have records")
    assert world.translate(8) == Translated(104, 2, "its receipt does not say which offsets have records")
    assert world.translate(10) == Translated(106)


def test_it_is_never_ahead_of_what_is_verified() -> None:
    world = one_chunk(list(range(10)), 10)
    world.account = replace(world.account, verified=Verified(generation=1, coverage=Coverage.of([OffsetRange(0, 6)])))
    found = world.translate(9)
    assert (found.offset, found.again) == (106, 3)
    assert "not verified" in found.why


def test_offsets_that_a_person_gave_up_have_no_records() -> None:
    world = one_chunk(list(range(10)), 10)
    gap = Gap(
        generation=1,
        kind="retention",
        range=OffsetRange(10, 40),
        reason="",
        approved_by="ann",
        ids=IDS,
        run_id="",
        time="",
    )
    position = world.account.position.adding(gap.range, None, 0)
    world.account = replace(world.account, position=position, gaps=(gap,))
    assert world.translate(33) == Translated(110)


def test_offsets_below_the_start_are_named() -> None:
    world = one_chunk(list(range(10)), 10)
    world.account = replace(world.account, position=replace(world.account.position, start=5))
    assert world.translate(3).why == "source offsets before 5 are not copied (start_from)"


def test_records_of_others_behind_ours_are_not_passed() -> None:
    """They may be of the tool whose copy was adopted, and that was not stopped."""
    position = Position(generation=1, ids=IDS, start=5, next_offset=6, target_end=100, adopted=ADOPTED)
    position = replace(position, coverage=Coverage.of([OffsetRange(5, 6)]))
    world = one_chunk([], 6)
    verified = replace(world.account.verified, coverage=Coverage.of([OffsetRange(5, 6)]))
    world.account = replace(world.account, position=position, verified=verified)
    world.log = OffsetRange(0, 130)
    receipt = receipt_of(OffsetRange(5, 6), 100, [])
    world.receipts = replace(world.receipts, stored={KEY: (StoredReceipt(0, receipt),)})
    assert world.translate(6).offset == world.translate(5).offset == 100
    world.account = replace(world.account, position=replace(position, coverage=Coverage(), next_offset=5))
    assert world.translate(5).offset == 100


def test_in_what_was_adopted_the_group_begins_at_its_beginning() -> None:
    """Another tool copied it: no receipt says where a record lies, so none may be passed."""
    world = one_chunk(list(range(10)), 10)
    world.account = replace(world.account, position=replace(world.account.position, start=5, adopted=ADOPTED))
    world.log = OffsetRange(7, world.log.until)  # only the end of the copy was compared
    assert (world.translate(3).offset, world.translate(3).again) == (7, 93)
    assert world.translate(7) == Translated(107)


def test_in_what_was_adopted_and_compared_the_group_begins_at_its_place() -> None:
    world = one_chunk(list(range(10)), 10)
    places = AdoptedPlaces.of([AdoptedRun(2, 30, 1, 69), AdoptedRun(3, 90, 2, 8)])
    position = replace(world.account.position, start=5, adopted=ADOPTED, adopted_places=places)
    world.account = replace(world.account, position=position)
    world.log = OffsetRange(7, world.log.until)
    assert [(world.translate(n).offset, world.translate(n).again) for n in (1, 2, 3, 4)] == [
        (7, 93),
        (30, 69),
        (90, 8),
        (91, 8),
    ]
    assert world.translate(4).why == "another tool copied these records, some of them more than once"
    world.log = OffsetRange(95, world.log.until)
    assert (world.translate(2).offset, world.translate(2).again) == (95, 5)
    exact = replace(position, adopted_places=AdoptedPlaces.of([AdoptedRun(0, 95, 5, 0)]))
    world.account = replace(world.account, position=exact)
    assert world.translate(3) == Translated(98)
