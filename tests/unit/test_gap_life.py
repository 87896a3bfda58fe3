"""A partition's whole life, simulated: whatever is copied, lost, given up and verified in whatever order, nothing is passed over."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Gap, Ids, Position, Receipt, Verified
from kafka_replication.ledger.placement import KafkaSegments
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning import refusals
from kafka_replication.planning.live import plan
from kafka_replication.planning.plan import PartitionPlan, State
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic
from kafka_replication.verification.verify import select_receipts
from tests.support.reports import copied_in

IDS = Ids("SRC", "s", "t")
KEY = PartitionKey("orders-dr", TopicPartition("orders", 0), "orders")
FILE = {
    "name": "orders-dr",
    "source": {"connection": "a"},
    "target": {"connection": "b"},
    "topics": {"include": ["orders"]},
}


@dataclass
class Life:
    """Source log [start, end), and what the ledger and the store say."""

    start: int = 0
    end: int = 0
    position: Position = field(default_factory=lambda: Position(generation=1, ids=IDS, start=0, next_offset=0))
    verified: Coverage = field(default_factory=Coverage)
    receipts: list[Receipt] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    watermark: int = 0

    @property
    def view(self) -> LedgerView:
        return LedgerView(
            {KEY: self.position},
            {KEY: Verified(generation=1, coverage=self.verified, level="digest", run_id="run", time="time")},
            {KEY: tuple(self.gaps)},
        )

    def plan(self) -> PartitionPlan:
        source = Topic(
            name="orders",
            topic_id="s",
            partitions={0: PartitionOffsets(self.start, self.end, self.end)},
            replication_factor=3,
        )
        target = Topic(name="orders", topic_id="t", partitions={0: PartitionOffsets(0, 0, 0)}, replication_factor=3)
        snapshot = Snapshot(
            source_cluster="SRC", target_cluster="TGT", source={"orders": source}, target={"orders": target}
        )
        return plan(Replication.model_validate(FILE), snapshot, self.view, {KEY: self.watermark}).partitions[0]

    def copy(self, range_: OffsetRange) -> None:
        for left in self.position.left_of(range_):
            self.position = self.position.adding(left, 3, 0)
            self.receipts.append(
                Receipt(
                    generation=1,
                    range=left,
                    count=left.span,
                    bytes=0,
                    digest="",
                    digest_kind="",
                    engine="",
                    placement=KafkaSegments(),
                    ids=IDS,
                    run_id="run",
                    time="time",
                )
            )

    # What may happen, each with a number to choose by.

    def produce(self, number: int) -> None:
        self.end += number

    def retention(self, number: int) -> None:
        self.start = min(self.end, self.start + number)

    def run(self, number: int) -> None:
        made = self.plan()
        if made.copy:
            assert made.copy.from_ >= self.start, "planned what cannot be read"
            self.copy(OffsetRange(made.copy.from_, min(made.copy.until, made.copy.from_ + number)))

    def backfill(self, number: int) -> None:
        self.copy(OffsetRange(min(self.end, self.start + number), min(self.end, self.start + 2 * number)))

    def approve(self, number: int) -> None:
        made = self.plan()
        first_gap = refusals.first_gap(self.position, self.start)
        assert (made.state is State.OVERRUN) == (first_gap is not None)
        if first_gap:
            assert f"--from {first_gap.from_} --until {first_gap.until} " in made.remedy
            self.position = self.position.adding(first_gap, None, 0)
            self.gaps.append(
                Gap(
                    generation=1,
                    kind="retention",
                    range=first_gap,
                    reason="r",
                    approved_by="ann",
                    ids=IDS,
                    run_id="run",
                    time="time",
                )
            )

    def verify(self, number: int) -> None:
        wanted = self.plan().verify
        self.verified = self.verified.union(Coverage.of(each.range for each in select_receipts(wanted, self.receipts)))

    def advance(self, number: int) -> None:
        self.watermark = max(self.watermark, self.view.of(KEY, 1).verified_or_waived().contiguous_end(0))


STEPS = st.tuples(
    st.sampled_from(["produce", "retention", "run", "backfill", "approve", "verify", "advance"]), st.integers(1, 20)
)


@given(st.lists(STEPS, max_size=40))
def test_every_offset_is_copied_once_or_given_up_and_the_watermark_passes_nothing_else(
    steps: list[tuple[str, int]],
) -> None:
    life = Life()
    for name, number in steps:
        getattr(life, name)(number)
        pieces = [*(each.range for each in life.receipts), *(each.range for each in life.gaps)]
        assert sum(each.span for each in pieces) == Coverage.of(pieces).span, "twice"
        assert Coverage.of(pieces) == life.position.coverage
        assert life.watermark <= life.position.next_offset
        assert not Coverage.of([OffsetRange(0, life.watermark)]).subtract(
            life.verified.union(Coverage.of(each.range for each in life.gaps))
        )
        assert not life.verified.subtract(Coverage.of(each.range for each in life.receipts)), (
            "a gap was called verified"
        )
        whole = OffsetRange(0, life.position.next_offset)
        copied, lost = copied_in(whole, life.receipts), life.view.of(KEY, 1).given_up().within(whole).span
        assert copied.records + lost == whole.span, "the report's arithmetic"
    # Approvals, a run and a verification always lead to the end.
    while life.plan().state is State.OVERRUN:
        life.approve(1)
    life.run(10_000)
    life.verify(1)
    life.advance(1)
    assert life.watermark == life.position.next_offset == life.end
    given_up = len(life.gaps)
    life.approve(1)
    assert len(life.gaps) == given_up
