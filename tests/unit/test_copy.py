"""Whatever fails in a copy, wherever it fails: running again leaves each record once and in order, on a simulated target."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.config.sections import Failures, Policy
from kafka_replication.model.choices import FailureKind
from kafka_replication.model.errors import Unreachable
from tests.support.simulated_copy import copier, task, until_settled
from tests.support.simulated_target import World, assert_consistent, opened

FAULTS = st.dictionaries(
    st.integers(0, 60),
    st.sampled_from(["killed", "killed after", "fenced", "unreachable", "stalled", "after", "prepared"]),
    max_size=12,
)
OFFSETS = st.sets(st.integers(0, 29), max_size=25).map(sorted)


@given(OFFSETS, st.integers(1, 8), FAULTS, st.lists(st.integers(0, 30), max_size=3), st.integers(1, 4))
def test_whatever_fails_wherever_running_again_leaves_each_record_once_and_in_order(
    records: list[int], chunk: int, faults: dict[int, str], cuts: list[int], sessions: int
) -> None:
    world = World(records, opened(), chunk, dict(faults))
    ends = [0, *sorted({*cuts, 30} - {0})]
    for from_, until in itertools.pairwise(ends):  # one run after the other, each with its own bounded range
        result = until_settled(world, task(from_, until))
        assert result.error is None
        assert world.target.position is not None
        assert world.target.position.next_offset == until
    assert world.target.visible() == records
    assert str(world.target.position.coverage if world.target.position else None) == "[0, 30)"


@given(OFFSETS, st.integers(1, 8), FAULTS)
def test_the_whole_range_asked_for_again_copies_nothing_twice(
    records: list[int], chunk: int, faults: dict[int, str]
) -> None:
    world = World(records, opened(), chunk, dict(faults))
    until_settled(world, task(0, 20))
    before = list(world.target.log)
    until_settled(world, task(0, 20))
    assert [
        slot for slot in world.target.log[len(before) :] if slot.state == "committed" and slot.record is not None
    ] == []
    assert until_settled(world, task(0, 30)).error is None  # a stale plan that overlaps what was copied
    assert world.target.visible() == records


@given(
    st.sets(st.integers(0, 29), min_size=1).map(sorted),
    st.integers(1, 8),
    FAULTS,
    st.sets(st.integers(0, 29), max_size=3),
    st.sets(st.integers(0, 29), max_size=3),
)
def test_a_refused_record_is_named_and_all_before_it_is_copied(
    records: list[int], chunk: int, faults: dict[int, str], late: set[int], at_once: set[int]
) -> None:
    world = World(records, opened(), chunk, dict(faults), refused_late=late, refused_at_once=at_once - late)
    refused = sorted((late | at_once) & set(records))
    result = until_settled(world, task(0, 30))
    if not refused:
        assert result.error is None
        return
    assert result.error == f"the record at offset {refused[0]} is refused"
    assert result.remedy
    assert not result.retriable
    assert world.target.visible() == [offset for offset in records if offset < refused[0]]
    assert world.target.position is not None
    assert world.target.position.next_offset == refused[0]
    world.refused_late, world.refused_at_once = set(), set()  # somebody raised the limit
    assert until_settled(world, task(0, 30)).error is None
    assert world.target.visible() == records


@given(
    st.sets(st.integers(0, 29), min_size=1).map(sorted),
    st.integers(1, 8),
    FAULTS,
    st.sets(st.integers(0, 29), max_size=6),
    st.sets(st.integers(0, 29), max_size=6),
    st.sampled_from(["quarantine", "skip"]),
)
def test_refused_records_are_set_aside_once_and_all_others_are_copied(
    records: list[int], chunk: int, faults: dict[int, str], late: set[int], at_once: set[int], policy: Policy
) -> None:
    world = World(records, opened(), chunk, dict(faults), refused_late=late, refused_at_once=at_once - late)
    refused = sorted((late | at_once) & set(records))
    result = until_settled(world, task(0, 30, most_failed=len(refused)), failures=Failures(policy=policy))
    assert result.error is None
    assert world.target.visible() == [offset for offset in records if offset not in refused]
    named = [failed for _, receipt in sorted(world.target.receipts.items()) for failed in receipt.failures]
    assert [failed.offset for failed in named] == refused
    assert all((failed.place is not None) == (policy == "quarantine") for failed in named)


@pytest.mark.parametrize("chunk", [1, 20])
@pytest.mark.parametrize("most", [0, 1, 2])
def test_one_record_more_than_the_limit_fails_the_range_behind_all_that_lies_before_it(most: int, chunk: int) -> None:
    world = World(list(range(10)), opened(), chunk, refused_at_once={2, 5, 8})
    result = copier(world, failures=Failures(policy="skip")).copy(task(0, 10, most_failed=most))
    assert result.error is not None and "failures.limit" in result.error and not result.retriable
    assert (result.failed, result.copied) == (most, [2, 4, 6][most])
    assert world.target.position is not None and world.target.position.next_offset == [2, 5, 8][most]
    assert_consistent(world)


@given(st.integers(1, 8), FAULTS, st.sets(st.integers(0, 29), max_size=8), st.integers(0, 4))
def test_no_repetition_and_no_lost_answer_gets_past_the_limit(
    chunk: int, faults: dict[int, str], refused: set[int], most: int
) -> None:
    world = World(list(range(30)), opened(), chunk, dict(faults), refused_at_once=refused)
    until_settled(world, task(0, 30, most_failed=most), failures=Failures(policy="skip"))
    assert sum(len(receipt.failures) for receipt in world.target.receipts.values()) == min(most, len(refused))


def test_a_kind_with_the_policy_to_fail_fails_behind_others_that_are_set_aside() -> None:
    world = World(list(range(10)), opened(), 4, refused_at_once={2, 6})
    world.kinds[6] = FailureKind.TOO_LARGE
    rules = Failures(policy="quarantine", too_large="fail")
    result = copier(world, failures=rules).copy(task(0, 10, most_failed=9))
    assert result.error == "the record at offset 6 is refused"
    assert world.target.visible() == [0, 1, 3, 4, 5]
    assert_consistent(world)


@pytest.mark.parametrize("refused", [False, True], ids=["after an error", "after a refused record"])
def test_nothing_is_written_behind_a_committed_chunk_that_is_not_shown(refused: bool) -> None:
    """Kafka completed its commit without its partition, and the abort of the next chunk dropped it there."""
    world = World(list(range(9)), opened(), 3, refused_at_once={7} if refused else set())

    def drop(call: str) -> None:
        if call == "copy_chunk" and len(world.target.visible()) == 6:
            for slot in world.target.log:
                if slot.record in (3, 4, 5):
                    slot.state = "aborted"
            if not refused:
                raise Unreachable("orders-0: copy_chunk was not answered", "run again")

    world.during = drop
    result = copier(world, failures=Failures(policy="skip")).copy(task(0, 9))
    assert result.error is not None and "last record" in result.error and result.retriable and result.sessions == 2
    assert result.stop is not None and result.stop.error_id == "target-lost"
    assert world.target.visible() == [0, 1, 2]
