"""One copy, step by step: the order of things, the bounds, and what its result says."""

from __future__ import annotations

import re
from dataclasses import replace
from unittest.mock import ANY

import pytest

from kafka_replication.copying.engine import CopyResult, CopyTask, Stop
from kafka_replication.ledger.entries import Position, Receipt
from kafka_replication.ledger.placement import KafkaSegments, Segment
from kafka_replication.model import times
from kafka_replication.model.errors import Unreachable
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.runtime.deadline import ATTEMPTS, Deadline
from kafka_replication.verification.digests import key_digest
from tests.support.simulated_copy import copier, task
from tests.support.simulated_target import IDS, KEY, Slot, Target, World, assert_consistent, opened


def test_the_position_is_read_after_fencing_and_the_ids_are_checked_before_every_commit() -> None:
    world = World(list(range(5)), opened(), 3)
    assert copier(world).copy(task(0, 5)).error is None
    assert world.trace == [
        "session",
        "fence",
        "position",
        "check_source",
        "check_target",
        "copy_chunk",
        "check_source",
        "check_ids",
        "commit",
        "copy_chunk",
        "check_source",
        "check_ids",
        "commit",
    ]


def test_a_commit_whose_answer_was_lost_is_not_repeated() -> None:
    for fault in ("after", "prepared"):
        world = World(list(range(5)), opened(), 3, {5: fault})
        result = copier(world).copy(task(0, 5))
        assert (result.error, result.sessions) == (None, 2)
        assert world.target.visible() == [0, 1, 2, 3, 4]
        assert world.trace.count("commit") == 2  # one for each chunk


def test_a_topic_that_is_re_created_during_the_copy_gets_no_commit() -> None:
    world = World(list(range(5)), opened(), 3)

    def recreate(call: str) -> None:
        if call == "copy_chunk" and world.target.receipts:
            world.ids = replace(IDS, source_topic="other")

    world.during = recreate
    result = copier(world).copy(task(0, 5))
    assert (result.error, result.remedy) == ("orders-0: a topic was re-created during the copy", "plan again")
    assert (result.retriable, result.copied) == (False, 3)
    assert world.target.visible() == [0, 1, 2]


def test_a_foreign_record_on_the_target_stops_the_copy_before_anything_is_sent() -> None:
    world = World(list(range(5)), opened(log=[Slot(99, "committed")]), 3)
    result = copier(world).copy(task(0, 5))
    assert result.error == "orders-0 on the target holds a record that the ledger does not know"
    assert (result.sessions, "copy_chunk" in world.trace) == (1, False)


def test_nothing_left_means_no_transaction() -> None:
    world = World(list(range(5)), opened(), 3)
    copier(world).copy(task(0, 5))
    world.trace.clear()
    result = copier(world).copy(task(0, 5))
    assert (result.error, result.copied, result.chunks, result.sessions) == (None, 0, 0, 1)
    assert world.trace == ["session", "fence", "position", "check_source", "check_target"]


def test_offsets_already_covered_are_left_out() -> None:
    world = World(list(range(10)), opened(), 3)
    assert world.target.position is not None
    world.target.position = replace(world.target.position, coverage=Coverage.of([OffsetRange(3, 6)]))
    assert copier(world).copy(task(0, 10)).copied == 7
    assert world.target.visible() == [0, 1, 2, 6, 7, 8, 9]
    assert world.target.position.next_offset == 10


# --- being fenced ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["check_ids", "check_target", "copy_chunk", "commit"])
def test_a_copier_that_is_overtaken_leaves_at_once_and_never_fences_back(moment: str) -> None:
    world = World(list(range(10)), opened(), 4)
    newer: list[CopyResult] = []

    def overtake(call: str) -> None:
        if call == moment and not newer:
            world.during = lambda call: None
            newer.append(copier(world).copy(task(0, 10, run_id="run-2")))

    world.during = overtake
    older = copier(world).copy(task(0, 10))
    assert newer[0].error is None
    assert newer[0].copied == 10
    assert (older.fenced, older.retriable, older.sessions, older.copied) == (True, True, 1, 0)
    assert older.error == "orders-0: a newer copier took over"
    assert world.trace.count("fence") == 2
    assert world.target.visible() == list(range(10))
    assert {receipt.run_id for receipt in world.target.receipts.values()} == {"run-2"}


# --- doubt, and its bounds ------------------------------------------------------------------------------------------------------------


def test_a_cluster_that_never_answers_ends_after_the_sessions_allowed_with_growing_pauses() -> None:
    world, pauses = World([0], opened(), faults=dict.fromkeys(range(50), "stalled")), list[float]()
    result = copier(world, sessions=7, pause=pauses.append).copy(task(0, 1))
    assert (result.sessions, result.retriable, result.fenced) == (7, True, False)
    assert result.error == (
        "copying orders-0 [0, 1): 7 attempts in a row failed, so this run gives up; the last error was:"
        " orders-0: fence made no progress"
    )
    assert result.remedy == "run again"
    assert pauses == pytest.approx([0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_after_500_attempts_it_is_named_and_said_where_the_copy_stands() -> None:
    """500 is the default. The first chunk was committed; what the target does not acknowledge then is the next one."""
    world = World(list(range(30)), opened(), 10)
    world.during = lambda call: setattr(world, "most", 0) if call == "commit" else None
    made = copier(world)
    made.attempts = ATTEMPTS
    result = made.copy(task(0, 30))
    assert (result.sessions, result.copied, result.retriable) == (500, 10, True)
    assert result.error is not None and "500 attempts in a row failed" in result.error
    assert result.error.endswith("the last error was: orders-0: records not delivered")
    assert result.stop == Stop(
        offset=10, key_digest=key_digest(b"k10"), attempts=500, seconds=ANY, error_id="attempts-exhausted"
    )


def test_a_refused_record_is_where_the_copy_stands() -> None:
    world = World(list(range(30)), opened(), 10, refused_late={17})
    result = copier(world).copy(task(0, 30))
    assert result.stop == Stop(
        offset=17, key_digest=key_digest(b"k17"), attempts=2, seconds=ANY, error_id="record-refused"
    )


def test_a_copy_that_ends_before_it_reads_a_record_has_an_offset_and_no_key() -> None:
    result = copier(World([5, 6], opened(), faults=dict.fromkeys(range(9), "fenced"))).copy(task(5, 9))
    assert result.stop == Stop(offset=5, key_digest="", attempts=1, seconds=ANY, error_id="fenced")


def test_attempts_are_counted_from_the_last_chunk_that_was_committed() -> None:
    """A connection that is cut now and then is no cluster that never answers."""
    world = World(list(range(30)), opened(), 1)

    def cut(call: str) -> None:
        if call == "copy_chunk" and world.trace.count("copy_chunk") % 2 == 0:
            raise Unreachable("orders-0: cut", "run again")

    world.during = cut
    result = copier(world, sessions=2).copy(task(0, 30))
    assert (result.error, result.copied, result.sessions) == (None, 30, 30)


def test_a_run_out_of_time_ends_by_name_and_keeps_what_is_committed() -> None:
    world = World(list(range(10)), opened(), 4)

    made = copier(world)

    def slow(call: str) -> None:
        if call == "commit" and world.target.receipts:
            made.deadline = Deadline(0.0)

    world.during = slow
    result = made.copy(task(0, 10))
    assert result.error == "copying orders-0 [8, 10): the run's time (timeouts.run) is used up"
    assert (result.copied, result.retriable, result.fenced) == (8, False, False)
    assert world.target.visible() == list(range(8))


def test_no_pause_reaches_beyond_the_runs_time() -> None:
    world, pauses = World([0], opened(), faults=dict.fromkeys(range(50), "unreachable")), list[float]()
    result = copier(world, sessions=500, pause=pauses.append, deadline=Deadline.after(0.3)).copy(task(0, 1))
    assert result.error == (
        "copying orders-0 [0, 1): the run's time (timeouts.run) is used up; the last error was: orders-0: fence was not answered"
    )
    assert (pauses, result.retriable) == ([], False)


def test_a_range_that_does_not_move_is_given_up_long_before_its_last_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second chunk is committed at 100 s; nothing moves after that."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    world = World(list(range(9)), opened(), 3)

    def during(call: str) -> None:
        if call == "commit":
            now[0] += 50
        if len(world.target.visible()) == 6:
            now[0] += 10
            world.faults[world.calls] = "unreachable"

    world.during = during
    made = copier(world, sessions=500, pause=lambda seconds: None, deadline=Deadline().while_moving(600))
    result = made.copy(task(0, 9))
    assert result.stop is not None and result.stop.error_id == "no-progress"
    assert (result.retriable, result.copied, world.target.visible()) == (True, 6, list(range(6)))
    assert result.sessions < 100
    assert_consistent(world)


def test_what_cannot_be_sent_in_time_is_sent_in_smaller_chunks_that_grow_again() -> None:
    """The target takes at most 10 records in the time that a chunk has, for its first 40 records."""
    world = World(list(range(200)), opened(), chunk=1_000)

    def during(call: str) -> None:
        if call == "copy_chunk" and len(world.target.visible()) < 40:
            world.most = 10
        elif call == "copy_chunk":
            world.most = 1_000

    world.during = during
    result = copier(world, sessions=6).copy(task(0, 200))
    assert (result.error, world.target.visible()) == (None, list(range(200)))
    assert max(world.sizes[-2:]) > 20
    assert_consistent(world)


def test_the_time_that_quotas_took_is_added_up_over_sessions() -> None:
    """Each session of the simulated sides waits 0.5 s for the target and 0.25 s for the source."""
    result = copier(World(list(range(9)), opened(), 3, {6: "unreachable"})).copy(task(0, 9))
    assert (result.error, result.sessions, result.throttled) == (None, 2, 1.5)


def test_what_is_no_error_of_ours_is_not_swallowed() -> None:
    world = World([0], opened())

    def broken(call: str) -> None:
        raise ZeroDivisionError

    world.during = broken
    with pytest.raises(ZeroDivisionError):
        copier(world).copy(task(0, 1))


# --- the plan against the ledger --------------------------------------------------------------------------------------------------------

AT_5 = Position(generation=1, ids=IDS, start=0, next_offset=5, coverage=Coverage.of([OffsetRange(0, 5)]))


@pytest.mark.parametrize(
    ("position", "wanted", "error", "remedy"),
    [
        (
            None,
            task(0, 9),
            "orders-0: the ledger has no position for orders-dr: orders-0 -> orders, yet it was opened",
            "ledger topics",
        ),
        (AT_5, task(5, 9, generation=2), "orders-0: the plan is for generation 2, the ledger is at 1", "plan again"),
        (AT_5, task(5, 9, ids=replace(IDS, target_topic="t-new")), "a topic was re-created", "plan again"),
        (
            AT_5,
            task(7, 9),
            "orders-0: the ledger's position is 5, but it was 7 when [7, 9) was planned: the ledger went back to an older state",
            "plan again",
        ),
    ],
    ids=["no position", "generation", "ids", "ledger went back"],
)
def test_a_ledger_that_does_not_fit_the_plan_stops_the_copy(
    position: Position | None, wanted: CopyTask, error: str, remedy: str
) -> None:
    world = World(list(range(9)), Target(position=position))
    result = copier(world).copy(wanted)
    assert error in (result.error or "")
    assert remedy in result.remedy
    assert (result.retriable, result.sessions, world.target.log) == (False, 1, [])


def test_a_ledger_ahead_of_the_plan_is_believed() -> None:
    world = World(list(range(9)), Target(position=AT_5))
    assert copier(world).copy(task(2, 9)).copied == 4
    assert world.target.visible() == [5, 6, 7, 8]


# --- what is written and told -----------------------------------------------------------------------------------------------------------


def test_each_chunk_leaves_a_receipt_and_a_position_that_fit() -> None:
    world = World([0, 1, 4, 5], opened(), 3)
    copier(world).copy(task(0, 9))
    first, second = world.target.receipts.values()
    time = first.time
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    assert first == Receipt(
        generation=1,
        range=OffsetRange(0, 5),
        count=3,
        bytes=30,
        digest="[0, 1, 4]",
        digest_kind="list",
        engine="simulated/1",
        placement=KafkaSegments((Segment(partition=0, first=0, last=2, count=3, digest="[0, 1, 4]"),)),
        ids=IDS,
        run_id="run-1",
        time=time,
    )
    assert (second.range, second.count) == (OffsetRange(5, 9), 1)
    # Target offsets 0-2 and 4 are records, 3 is the first transaction's marker.
    assert world.target.position == Position(
        generation=1,
        ids=IDS,
        start=0,
        next_offset=9,
        coverage=Coverage.of([OffsetRange(0, 9)]),
        leader_epoch=5,
        target_end=5,
    )


def test_a_range_without_visible_records_still_moves_the_position() -> None:
    world = World([], opened(), 3)
    result = copier(world).copy(task(0, 9))
    assert (result.error, result.copied, result.chunks) == (None, 0, 1)
    assert world.target.position == Position(
        generation=1, ids=IDS, start=0, next_offset=9, coverage=Coverage.of([OffsetRange(0, 9)])
    )
    assert next(iter(world.target.receipts.values())).parts == ()


def test_the_result_counts_this_calls_work_and_progress_is_told_after_each_commit() -> None:
    told: list[tuple[int, int, int]] = []
    world = World(list(range(7)), opened(), 3, {5: "after"})

    def progress(wanted: CopyTask, so_far: CopyResult) -> None:
        assert wanted == task(0, 7)
        told.append((so_far.copied, so_far.chunks, so_far.bytes))

    result = copier(world, progress=progress).copy(task(0, 7))
    # The first chunk's commit was answered too late: an earlier session's work that this call cannot vouch for.
    assert told == [(3, 1, 30), (4, 2, 40)]
    assert (result.key, result.range, result.copied, result.bytes, result.chunks, result.sessions) == (
        KEY,
        OffsetRange(0, 7),
        4,
        40,
        2,
        2,
    )
    assert result.seconds >= 0


def test_now_is_utc_in_milliseconds() -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", times.now())
