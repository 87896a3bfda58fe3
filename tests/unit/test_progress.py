"""How far a run is: the arithmetic, and the line of text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.documents import as_json
from kafka_replication.ledger.entries import Gap, Ids, Position, Verified
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.times import duration
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.reporting.progress import WINDOW, Counts, Progress, Speed, Tally, Work, work_of

IDS = Ids("cluster", "source id", "target id")
KEYS = [PartitionKey("orders-dr", TopicPartition("orders", number), "orders") for number in range(3)]
HALF = Progress(
    ranges=40,
    ranges_done=12,
    offsets=1000,
    offsets_done=379,
    records=1_200_000,
    bytes=512_000_000,
    seconds=11.0,
    bytes_per_second=48_300_000.0,
    seconds_left=40.4,
    slowest="orders-7",
    slowest_percent=12,
)
DONE = replace(
    HALF, ranges_done=40, offsets_done=1000, seconds_left=0.0, slowest=None, slowest_percent=None, records=9, bytes=0
)


def covered(*pairs: tuple[int, int]) -> Coverage:
    return Coverage.of(OffsetRange(*pair) for pair in pairs)


def position(coverage: Coverage, generation: int = 1) -> Position:
    return Position(generation=generation, ids=IDS, start=0, next_offset=0, coverage=coverage)


def verified(coverage: Coverage, generation: int = 1) -> Verified:
    return Verified(generation=generation, coverage=coverage, level="digest", run_id="run", time="now")


def test_a_line_says_everything() -> None:
    assert str(HALF) == (
        "12 of 40 ranges done, 1,200,000 records, 512.0 MB, 48.3 MB/s, 37%, about 40 s left; slowest orders-7 (12%)"
    )


def test_a_small_or_slow_run_is_not_said_to_copy_nothing() -> None:
    small = replace(HALF, bytes=72_000, bytes_per_second=7_200.0)
    assert ", 72.0 kB, 7.2 kB/s, " in str(small)
    assert ", 999 bytes, 12 bytes/s, " in str(replace(HALF, bytes=999, bytes_per_second=12.3))
    assert ", 2.5 GB, 1.2 GB/s, " in str(replace(HALF, bytes=2_500_000_000, bytes_per_second=1.2e9))


def test_the_wait_for_quotas_or_for_the_target_is_said() -> None:
    said = "48.3 MB/s, 37%, about 40 s left, quotas or a target that was not ready made it wait 2 min; slowest orders-7 (12%)"
    assert str(replace(HALF, throttled=125.5)).endswith(said)


def test_what_a_run_waits_for_is_said() -> None:
    said = "; slowest orders-7 (12%); waits for the end of a transaction"
    assert str(replace(HALF, waiting="the end of a transaction")).endswith(said)


def test_what_is_not_known_is_not_said() -> None:
    assert str(replace(HALF, seconds_left=None, slowest=None)).endswith("48.3 MB/s, 37%")
    assert str(DONE).endswith("MB/s, 100%")


def test_a_run_that_only_reads_back_says_so_and_is_not_at_its_end() -> None:
    reading = replace(DONE, ranges_done=39, seconds_left=None)
    assert str(reading).endswith("99%, all copied, reading back")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h"), (86_400, "24.0 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_it_travels_as_json() -> None:
    text = json.dumps({**as_json(HALF), "at": "2030-01-01T00:00:00Z", "of a newer version": [1]})
    assert json.loads(text)["percent"] == 37
    assert Progress.from_json(text) == HALF
    for damaged in ("", "{}", "[]", '{"ranges": "many"}'):
        assert Progress.from_json(damaged) is None


def test_the_work_of_a_plan_is_what_it_copies_and_verifies_and_does_not_refuse() -> None:
    def planned(key: PartitionKey, state: State, copy: OffsetRange | None, verify: Coverage) -> PartitionPlan:
        return PartitionPlan(
            key=key,
            state=state,
            ids=IDS,
            generation=3,
            start=0,
            position=5,
            source_end=20,
            watermark=0,
            copy=copy,
            verify=verify,
        )

    partitions = (
        planned(KEYS[0], State.BEHIND, OffsetRange(10, 20), covered((5, 10))),
        planned(KEYS[1], State.IN_SYNC, None, Coverage()),
        planned(KEYS[2], State.OVERRUN, None, Coverage()),
    )
    assert work_of(Plan("orders-dr", partitions)) == {KEYS[0]: Work(3, covered((5, 20)))}


def test_a_range_is_done_when_it_is_verified_and_an_offset_when_it_is_on_the_target() -> None:
    tally = Tally({KEYS[0]: Work(1, covered((10, 30))), KEYS[1]: Work(1, covered((0, 100)))})
    assert tally.count(LedgerView()) == Counts(
        ranges=2, ranges_done=0, offsets=120, offsets_done=0, slowest="orders-1", slowest_percent=0
    )
    copied = {KEYS[0]: position(covered((0, 30))), KEYS[1]: position(covered((0, 25)))}
    assert tally.count(LedgerView(copied)) == Counts(
        ranges=2, ranges_done=0, offsets=120, offsets_done=45, slowest="orders-1", slowest_percent=25
    )
    assert tally.unfinished == {KEYS[0], KEYS[1]}
    view = LedgerView(copied, {KEYS[0]: verified(covered((5, 30)))})
    assert tally.count(view).ranges_done == 1
    assert tally.unfinished == {KEYS[1]}
    everything = LedgerView(
        {**copied, KEYS[1]: position(covered((0, 100)))},
        {**view.verified, KEYS[1]: verified(covered((0, 99)))},
    )
    assert tally.count(everything) == Counts(ranges=2, ranges_done=1, offsets=120, offsets_done=120)


def test_another_generation_is_other_records() -> None:
    tally = Tally({KEYS[0]: Work(2, covered((0, 10)))})
    old = LedgerView({KEYS[0]: position(covered((0, 10)))}, {KEYS[0]: verified(covered((0, 10)))})
    assert tally.count(old).offsets_done == tally.count(old).ranges_done == 0
    assert tally.generation(KEYS[0]) == 2 and tally.generation(KEYS[1]) is None


def test_given_up_offsets_are_not_waited_for() -> None:
    gap = Gap(
        generation=1,
        kind="retention",
        range=OffsetRange(0, 4),
        reason="old",
        approved_by="me",
        ids=IDS,
        run_id="r",
        time="t",
    )
    view = LedgerView({KEYS[0]: position(covered((4, 10)))}, {KEYS[0]: verified(covered((4, 10)))}, {KEYS[0]: (gap,)})
    standing = Tally({KEYS[0]: Work(1, covered((0, 10)))}).count(view)
    assert (standing.offsets_done, standing.ranges_done) == (10, 1)


COVERAGES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda pair: OffsetRange(pair[0], sum(pair))), max_size=4
).map(Coverage.of)


@given(st.lists(st.tuples(COVERAGES, COVERAGES, COVERAGES), min_size=1, max_size=3), st.data())
def test_counting_step_by_step_is_counting_at_once(
    partitions: list[tuple[Coverage, Coverage, Coverage]], data: st.DataObject
) -> None:
    """A tally looks only at what has changed; the result is that of a new one, which is that of sets of offsets."""
    work = {key: Work(1, todo) for key, (todo, _, _) in zip(KEYS, partitions, strict=False)}
    tally, view = Tally(work), LedgerView()
    for key, (_, copied, read) in zip(KEYS, partitions, strict=False):
        tally.count(view)
        proven = Coverage.of(both for range_ in copied for both in read.within(range_))
        view = LedgerView(
            {**view.positions, key: position(copied)},
            {**view.verified, key: verified(proven)} if data.draw(st.booleans()) else view.verified,
        )
    counted = tally.count(view)
    assert counted == Tally(work).count(view)

    def members(coverage: Coverage) -> set[int]:
        return {offset for range_ in coverage for offset in range(range_.from_, range_.until)}

    wanted = {key: members(todo.offsets) for key, todo in work.items()}
    there = {key: members(view.positions[key].coverage) for key in work}
    proved = {key: members(view.of(key, 1).verified.coverage) for key in work}
    assert counted.offsets == sum(map(len, wanted.values()))
    assert counted.offsets_done == sum(len(wanted[key] & there[key]) for key in work)
    assert counted.ranges_done == sum(wanted[key] <= proved[key] for key in work)
    most = max(len(wanted[key] - there[key]) for key in work)
    assert (counted.slowest is None) == (most == 0)


STEPS = st.lists(st.tuples(st.floats(0.001, 100), st.integers(0, 50)), min_size=1, max_size=40)


@given(STEPS, st.integers(0, 100))
def test_speed_and_time_left_are_never_negative_and_come_to_an_end(steps: list[tuple[float, int]], before: int) -> None:
    pace, at, done = Speed(5.0, before), 5.0, before
    total = before + sum(count for _, count in steps)
    progress: Progress | None = None
    for seconds, count in steps:
        at, done = at + seconds, done + count
        ended = done == total
        standing = Counts(ranges=1, ranges_done=int(ended), offsets=total, offsets_done=done)
        progress = pace.progress(at, standing, done - before, 100 * (done - before))
        assert 0 <= progress.percent <= 100 and (progress.percent == 100) == ended
        assert progress.bytes_per_second >= 0 and progress.seconds == pytest.approx(at - 5.0, abs=0.01)
        assert progress.seconds_left is None or progress.seconds_left >= 0
    assert progress is not None and progress.seconds_left == 0


def test_the_time_left_is_unknown_until_something_is_done() -> None:
    standing = Counts(ranges=1, ranges_done=0, offsets=200, offsets_done=100)  # 100 by an earlier attempt
    pace = Speed(0.0, 100)
    assert pace.progress(10.0, standing, 0, 0).seconds_left is None
    later = pace.progress(20.0, replace(standing, offsets_done=150), 50, 5000)
    assert (later.seconds_left, later.bytes_per_second) == (20.0, 250.0)


def test_the_speed_is_that_of_the_last_minute() -> None:
    standing, pace = Counts(ranges=1, ranges_done=0, offsets=10_000, offsets_done=0), Speed(0.0, 0)
    progress = pace.progress(10.0, replace(standing, offsets_done=1000), 1000, 1_000_000)  # fast at first
    for step in range(1, 8):
        progress = pace.progress(10.0 + 10 * step, replace(standing, offsets_done=1000 + step), 1000, 1_000_000 + step)
    assert progress.bytes_per_second == pytest.approx(6 / WINDOW)
    stopped = pace.progress(1000.0, replace(standing, offsets_done=1007), 1000, 1_000_007)
    assert (stopped.bytes_per_second, stopped.seconds_left) == (0, None)
