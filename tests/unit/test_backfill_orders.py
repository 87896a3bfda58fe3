"""No order of live runs and backfills, each of which may die anywhere, doubles or loses an offset: on a simulated target."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_replication.ledger.entries import Position, Verified
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.planning.backfill_plan import next_slice, plan_backfill
from kafka_replication.planning.live import plan
from kafka_replication.planning.plan import Plan
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic
from tests.support.backfill_worlds import AT, IDS, KEY, covered, replication

END = 60


@dataclass
class Simulated:
    """One partition's ledger, and what its target holds: source offsets, as often as they were copied."""

    position: Position
    target: list[int] = field(default_factory=list)
    verified: Coverage = field(default_factory=Coverage)
    watermark: int = 0

    def copy(self, made: Plan, chunk: int, chunks: int) -> None:
        """What the copier does with a plan, until it dies after so many chunks."""
        for each in made.to_copy:
            assert each.copy is not None
            while chunks and (left := self.position.left_of(each.copy)):
                part = OffsetRange(left[0].from_, min(left[0].until, left[0].from_ + chunk))
                self.target += range(part.from_, part.until)
                self.position = self.position.adding(part, 1, len(self.target))
                chunks -= 1

    def settle(self) -> None:
        """Verify and advance."""
        self.verified = self.position.coverage
        moved = self.verified.contiguous_end(self.position.start)
        assert moved >= self.watermark, "the watermark went back"
        self.watermark = moved

    def planned(self, end: int, asked: OffsetRange | None, most: int | None) -> Plan:
        config = replication(max_records_per_run=most)
        source = {
            "orders": Topic(
                name="orders", topic_id="s", partitions={0: PartitionOffsets(0, end, end)}, replication_factor=3
            )
        }
        target = {
            "orders": Topic(
                name="orders", topic_id="t", partitions={0: PartitionOffsets(0, 9999, 9999)}, replication_factor=3
            )
        }
        snapshot = Snapshot(source_cluster="SRC", target_cluster="TGT", source=source, target=target)
        view = LedgerView(
            {KEY: self.position},
            {KEY: Verified(generation=1, coverage=self.verified, level="digest", run_id="r", time="t")},
        )
        live = plan(config, snapshot, view, {KEY: self.watermark})
        if asked is None:
            return live
        watermarks = {KEY: self.watermark}
        made = plan_backfill(config, snapshot, view, watermarks, {AT: asked}, opens=False, live=live)
        return next_slice(made.plan, {KEY: self.position}, most)


STEP = st.tuples(
    st.booleans(),
    st.integers(0, END),
    st.integers(0, END),
    st.integers(1, 9),
    st.integers(0, 9),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 20)),
)


@settings(deadline=None, max_examples=120)
@given(st.integers(0, END), st.lists(STEP, max_size=12))
def test_any_order_of_live_runs_and_backfills_that_die_anywhere(
    start: int, steps: list[tuple[bool, int, int, int, int, bool, int | None]]
) -> None:
    world = Simulated(Position(generation=1, ids=IDS, start=start, next_offset=start), watermark=start)
    wanted = set()
    for live, one, other, chunk, chunks, settles, most in steps:
        asked = OffsetRange(min(one, other), max(one, other))
        world.copy(world.planned(END, None if live else asked, most), chunk, chunks)
        if not live:
            wanted |= set(range(asked.from_, asked.until))
        if settles:
            world.settle()
        assert sorted(world.target) == sorted(set(world.target)), "an offset is on the target twice"
        assert {offset for each in world.position.coverage for offset in range(each.from_, each.until)} == set(
            world.target
        )
        assert set(world.target) <= wanted | set(range(start, END))
    world.copy(world.planned(END, None, None), 7, 1000)
    world.settle()
    assert set(range(start, END)) <= set(world.target) and len(set(world.target)) == len(world.target)
    assert world.watermark == END == world.position.next_offset
    assert not world.planned(END, None, None).to_copy


@settings(deadline=None)
@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, END), st.integers(0, END)), max_size=4))
def test_slices_are_bounded_and_come_to_an_end(most: int, before: list[tuple[int, int]]) -> None:
    position = Position(generation=1, ids=IDS, start=0, next_offset=0)
    for pair in before:
        position = position.adding(OffsetRange(min(pair), max(pair)), None, 0)
    world = Simulated(position)
    for _ in range(END + 1):
        part = world.planned(END, OffsetRange(5, 50), most)
        if not part.partitions:
            break
        copied = len(world.target)
        world.copy(part, 1000, 1000)
        assert copied < len(world.target) <= copied + most
    assert world.position.coverage.contains(OffsetRange(5, 50))


def test_an_older_records_leader_epoch_is_not_resumed_with() -> None:
    """The broker would answer that this epoch ended below the position, and the client would report a truncation."""
    live = Position(generation=1, ids=IDS, start=400, next_offset=600, coverage=covered((400, 600)), leader_epoch=5)
    assert live.adding(OffsetRange(0, 100), 1, 0).leader_epoch == 5
    assert live.adding(OffsetRange(600, 700), 6, 0).leader_epoch == 6
    ahead = live.adding(OffsetRange(800, 900), 7, 0)
    assert (ahead.next_offset, ahead.leader_epoch) == (600, 5)
    filled = ahead.adding(OffsetRange(600, 800), 6, 0)
    assert (filled.next_offset, filled.leader_epoch) == (900, None), (
        "the epoch of the record before 900 is not known any more"
    )
