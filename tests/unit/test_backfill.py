"""A backfill's plan: what it answers first, what it refuses; and that no order of runs copies an offset twice or misses one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Ids, Position, Verified
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.planning.backfill import (
    BackfillInput,
    BackfillLine,
    BackfillPlan,
    Sample,
    next_slice,
    one_topic,
    plan_backfill,
)
from kafka_replication.planning.backfill_request import BackfillRequest
from kafka_replication.planning.live import plan
from kafka_replication.planning.plan import Plan, State
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic
from kafka_replication.reporting.backfill import as_json, plan_table

AT = TopicPartition("orders", 0)
KEY = PartitionKey("orders-dr", AT, "orders")
IDS = Ids("SRC", "s", "t")
DAY = 86_400_000
NOW = datetime(2024, 1, 31, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
OWN = BackfillRequest(topics=("orders",), from_=0, until=1)
OTHER = replace(OWN, target_topic="again")


def replication(**more: Any) -> Replication:
    return Replication.model_validate(
        {
            "name": "orders-dr",
            "source": {"connection": "here"},
            "target": {"connection": "there"},
            "topics": {"include": ["orders"]},
            **more,
        }
    )


def covered(*pairs: tuple[int, int]) -> Coverage:
    return Coverage.of(OffsetRange(*pair) for pair in pairs)


def position(start: int, next_offset: int, *more: tuple[int, int]) -> Position:
    return Position(
        generation=1,
        ids=IDS,
        start=start,
        next_offset=next_offset,
        coverage=covered((start, next_offset), *more),
        leader_epoch=4,
        target_end=next_offset,
    )


@dataclass(frozen=True)
class Case:
    """One partition [log start 30, end 1000); without more, live copying started at 400 and is at 600, all of it verified."""

    position: Position | None = field(default_factory=lambda: position(400, 600))
    verified: Coverage | None = None
    target: Mapping[str, str] | None = field(default_factory=lambda: {"retention.ms": str(7 * DAY)})
    log_start: int = 30
    source_id: str = "s"
    config: Mapping[str, Any] = field(default_factory=dict)
    request: BackfillRequest = OWN
    watermarks: Mapping[PartitionKey, int] = field(default_factory=dict)

    def plan(self, from_: int, until: int, sample: Sample | None = None) -> BackfillPlan:
        config = one_topic(replication(**self.config), self.request)
        source = {
            "orders": Topic(
                name="orders",
                topic_id=self.source_id,
                partitions={0: PartitionOffsets(self.log_start, 1000, 1000)},
                replication_factor=3,
                config={"retention.ms": "-1"},
            )
        }
        name = self.request.target_topic or "orders"
        target = (
            {}
            if self.target is None
            else {
                name: Topic(
                    name=name,
                    topic_id="t",
                    partitions={0: PartitionOffsets(0, 9999, 9999)},
                    replication_factor=3,
                    config=self.target,
                )
            }
        )
        key = replace(KEY, target_topic=name)
        seen = self.verified if self.verified is not None else self.position.coverage if self.position else Coverage()
        view = (
            LedgerView(
                {key: self.position},
                {key: Verified(generation=1, coverage=seen, level="digest", run_id="run", time="t")},
            )
            if self.position
            else LedgerView()
        )
        snapshot = Snapshot(
            source_cluster="SRC",
            target_cluster="TGT",
            source=source,
            target=target,
            starts={AT: 1000} if config.start_from == "latest" else {},
        )
        live = plan(config, snapshot, view, self.watermarks)
        given = BackfillInput(replication=config, snapshot=snapshot, ledger=view, watermarks=self.watermarks, live=live)
        made = plan_backfill(given, {AT: OffsetRange(from_, until)}, opens=self.request.target_topic is not None)
        return made.estimated({AT: sample} if sample else {})

    def line(self, from_: int, until: int, sample: Sample | None = None) -> BackfillLine:
        [line] = self.plan(from_, until, sample).lines
        return line


def test_it_says_what_is_there_and_what_would_be_copied() -> None:
    line = Case(position(400, 600, (100, 150))).line(50, 500)
    assert (str(line.covered), str(line.gone), str(line.left)) == (
        "[100, 150) [400, 500)",
        "nothing",
        "[50, 100) [150, 400)",
    )
    assert (line.plan.state, line.plan.copy, line.plan.position) == (State.BEHIND, OffsetRange(50, 500), 600)
    assert line.newer == 250, "50 offsets of an earlier backfill and 200 of live copying lie beyond 50"


def test_all_of_it_on_the_target_is_nothing_to_do() -> None:
    made = Case().plan(450, 600)
    assert (made.lines[0].plan.state, made.plan.idle) == (State.IN_SYNC, True)
    assert "nothing to do: all of it is on the target already, and verified" in plan_table(made, NOW)
    assert as_json(made)["outcome"] == "nothing_to_do"


def test_what_an_earlier_run_left_unverified_is_verified() -> None:
    made = Case(verified=covered((400, 550))).plan(450, 600)
    assert (made.lines[0].plan.state, str(made.lines[0].plan.verify), made.plan.idle) == (
        State.PENDING,
        "[550, 600)",
        False,
    )
    assert "nothing to copy" in plan_table(made, NOW)


def test_what_is_pending_inside_of_a_range_to_copy_is_no_line_of_its_own() -> None:
    line = Case(position(400, 600, (100, 150)), verified=covered((400, 550))).line(50, 500)
    assert (line.plan.copy, str(line.plan.verify)) == (OffsetRange(50, 500), "[550, 600)")


def test_an_estimate_is_scaled_from_the_sample() -> None:
    line = Case().line(50, 250, Sample(records=80, span=100, bytes=8_000, oldest=NOW_MS))
    assert (line.records, line.bytes) == (160, 16_000)
    assert "~160" in plan_table(Case().plan(50, 250, Sample(80, 100, 8_000, NOW_MS)), NOW)


@pytest.mark.parametrize(
    ("config", "age", "words"),
    [
        ({"retention.ms": str(7 * DAY)}, 2, "5.0 d more"),
        ({"retention.ms": str(7 * DAY)}, 8, "NOT: too old"),
        ({"retention.ms": "-1"}, 999, "for ever"),
        ({"retention.ms": "5", "cleanup.policy": "compact"}, 999, "for ever"),
        ({"retention.ms": "5", "cleanup.policy": "compact,delete"}, 1, "NOT: too old"),
    ],
)
def test_how_long_the_target_keeps_such_records(config: dict[str, str], age: int, words: str) -> None:
    made = Case(target=config).plan(50, 250, Sample(10, 10, 10, NOW_MS - age * DAY))
    assert words in plan_table(made, NOW)
    assert ("RETENTION orders-0: orders keeps records" in plan_table(made, NOW)) == (words == "NOT: too old")


def test_the_document_of_a_dry_run() -> None:
    assert as_json(Case().plan(50, 450, Sample(10, 10, 500, NOW_MS))) == {
        "replication": "orders-dr",
        "dry_run": True,
        "outcome": "planned",
        "offsets_to_copy": 350,
        "estimated_records": 350,
        "estimated_bytes": 17_500,
        "partitions": [
            {
                "topic": "orders",
                "partition": 0,
                "target_topic": "orders",
                "from": 50,
                "until": 450,
                "on_target": [[400, 450]],
                "gone": [],
                "to_copy": [[50, 400]],
                "to_copy_again": [],
                "lost_on_both_sides": [],
                "withheld": [],
                "to_verify": [],
                "estimated_records": 350,
                "estimated_bytes": 17_500,
                "newer_on_target": 200,
                "oldest_record": "2024-01-31T00:00:00Z",
                "target_keeps_ms": 7 * DAY,
                "kept_until": "2024-02-07T00:00:00Z",
                "error": None,
                "remedy": None,
            }
        ],
    }


# --- refusals ----------------------------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Case, State, str, str]] = {
    "gone": (
        Case(),
        State.OVERRUN,
        "orders-0: offsets [10, 30) can no longer be read, the log now starts at 30",
        "request only readable offsets: from 30",
    ),
    "source re-created": (
        Case(source_id="new"),
        State.SOURCE_RECREATED,
        "the source topic was re-created",
        "kafka-replication reset",
    ),
    "target deleted": (
        Case(target=None),
        State.TARGET_RECREATED,
        "the target topic orders was re-created or deleted",
        "",
    ),
    "ledger went back": (
        Case(watermarks={KEY: 700}),
        State.LEDGER_LOST,
        "below 700 was verified, but the ledger ends at 600",
        "",
    ),
    "ledger lost": (Case(None, watermarks={KEY: 700}), State.LEDGER_LOST, "the ledger has no entry", ""),
    "target missing": (
        Case(None, target=None, request=OTHER, config={"target_topics": {"create": False}}),
        State.TARGET_MISSING,
        "the target topic again does not exist",
        "create it",
    ),
}


@pytest.mark.parametrize(("case", "state", "what", "remedy"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_done_is_named_with_its_remedy(case: Case, state: State, what: str, remedy: str) -> None:
    made = case.plan(10, 100)
    assert made.lines[0].plan.state is state
    with pytest.raises(Refused) as refused:
        made.raise_refused()
    assert what in refused.value.what and remedy in refused.value.remedy
    assert what in plan_table(made, NOW) and as_json(made)["outcome"] == "failed"


def test_what_is_gone_at_the_source_and_on_the_target_already_is_no_obstacle() -> None:
    line = Case(position(0, 600)).line(0, 700)
    assert (str(line.gone), str(line.left), line.plan.refused) == ("nothing", "[600, 700)", False)


def test_a_range_that_is_still_there_can_be_copied_though_live_copying_was_overrun() -> None:
    line = Case(position(0, 20)).line(50, 100)
    assert (line.plan.state, line.plan.copy) == (State.BEHIND, OffsetRange(50, 100))


def test_a_range_beyond_the_position_says_so_and_keeps_the_plans_position() -> None:
    line = Case().line(800, 900)
    assert (line.plan.position, line.newer, line.plan.copy) == (600, 0, OffsetRange(800, 900))


# --- where a partition begins ------------------------------------------------------------------------------------------------------


def test_the_replications_own_partition_opens_where_live_copying_begins_it() -> None:
    line = Case(None, config={"start_from": "latest"}).line(50, 100)
    assert (line.plan.state, line.plan.start, line.plan.copy) == (State.OPENING, 1000, OffsetRange(50, 100))


def test_another_target_opens_where_the_range_begins() -> None:
    line = Case(None, target={}, request=OTHER).line(50, 100)
    assert (line.plan.state, line.plan.start, line.plan.copy, line.key.target_topic) == (
        State.OPENING,
        50,
        OffsetRange(50, 100),
        "again",
    )


def world_with_another_target(verified: Coverage, topic_id: str = "t") -> tuple[Snapshot, LedgerView]:
    other = replace(KEY, target_topic="again")
    view = LedgerView(
        {other: position(100, 200)},
        {other: Verified(generation=1, coverage=verified, level="digest", run_id="run", time="t")},
    )
    source = {
        "orders": Topic(
            name="orders", topic_id="s", partitions={0: PartitionOffsets(30, 1000, 1000)}, replication_factor=3
        )
    }
    target = {
        name: Topic(name=name, topic_id=topic_id, partitions={0: PartitionOffsets(0, 9999, 9999)}, replication_factor=3)
        for name in ("orders", "again")
    }
    return Snapshot(source_cluster="SRC", target_cluster="TGT", source=source, target=target, starts={AT: 1000}), view


def test_live_copying_is_not_misled_by_a_backfill_to_another_target() -> None:
    snapshot, view = world_with_another_target(covered((100, 200)))
    [line] = plan(replication(start_from="latest"), snapshot, view, {}).partitions
    assert (line.state, line.start) == (State.OPENING, 1000), "it is the first opening still: latest means latest"


def test_what_such_a_backfill_left_unverified_is_found_by_a_live_run_unless_its_topic_is_gone() -> None:
    snapshot, view = world_with_another_target(covered((100, 150)))
    pending = plan(replication(), snapshot, view, {}).partitions[1]
    assert (pending.key.target_topic, pending.state, str(pending.verify), pending.copy) == (
        "again",
        State.PENDING,
        "[150, 200)",
        None,
    )
    snapshot, view = world_with_another_target(covered((100, 150)), topic_id="new")
    assert len(plan(replication(), snapshot, view, {}).partitions) == 1


# --- no order of runs doubles or loses an offset --------------------------------------------------------------------------------------

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
                self.position = self.position.after(part, 1, len(self.target))
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
        made = plan_backfill(
            BackfillInput(
                replication=config, snapshot=snapshot, ledger=view, watermarks={KEY: self.watermark}, live=live
            ),
            {AT: asked},
            opens=False,
        ).plan
        return next_slice(made, {KEY: self.position}, most)


STEP = st.tuples(
    st.booleans(),
    st.integers(0, END),
    st.integers(0, END),
    st.integers(1, 9),
    st.integers(0, 9),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 20)),
)


@settings(deadline=None, max_examples=300)
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
        position = position.after(OffsetRange(min(pair), max(pair)), None, 0)
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
    assert live.after(OffsetRange(0, 100), 1, 0).leader_epoch == 5
    assert live.after(OffsetRange(600, 700), 6, 0).leader_epoch == 6
    ahead = live.after(OffsetRange(800, 900), 7, 0)
    assert (ahead.next_offset, ahead.leader_epoch) == (600, 5)
    filled = ahead.after(OffsetRange(600, 800), 6, 0)
    assert (filled.next_offset, filled.leader_epoch) == (900, None), (
        "the epoch of the record before 900 is not known any more"
    )
