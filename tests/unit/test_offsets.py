"""Offsets, ranges and coverage: every operation does what the same operation on Python sets does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, TopicPartition, readable

TOP = 40


@st.composite
def ranges(draw: st.DrawFn) -> OffsetRange:
    from_ = draw(st.integers(0, TOP))
    return OffsetRange(from_, draw(st.integers(from_, TOP)))


LISTS = st.lists(ranges(), max_size=8)


def offsets(stretches: Sequence[OffsetRange] | Coverage) -> set[int]:
    return {offset for each in stretches for offset in range(each.from_, each.until)}


def assert_coalesced(coverage: Coverage) -> None:
    assert all(each.span for each in coverage)
    assert all(before.until < after.from_ for before, after in zip(coverage.ranges, coverage.ranges[1:], strict=False))


@given(LISTS)
def test_coalescing_keeps_exactly_the_offsets_given(given_ranges: list[OffsetRange]) -> None:
    made = Coverage.of(given_ranges)
    assert_coalesced(made)
    assert offsets(made) == offsets(given_ranges)
    assert made.span == len(offsets(given_ranges))
    assert bool(made) == bool(offsets(given_ranges))
    assert Coverage.of(reversed(given_ranges)) == made


@given(LISTS, LISTS)
def test_union_and_difference_are_those_of_sets(left: list[OffsetRange], right: list[OffsetRange]) -> None:
    one, other = Coverage.of(left), Coverage.of(right)
    for result, expected in (
        (one.union(other), offsets(left) | offsets(right)),
        (one.add(*right), offsets(left) | offsets(right)),
        (one.subtract(other), offsets(left) - offsets(right)),
    ):
        assert_coalesced(result)
        assert offsets(result) == expected


@given(LISTS, ranges())
def test_what_is_missing_from_a_wanted_range(covered: list[OffsetRange], wanted: OffsetRange) -> None:
    coverage = Coverage.of(covered)
    missing = coverage.missing_from(wanted)
    assert offsets(missing) == offsets([wanted]) - offsets(covered)
    assert_coalesced(Coverage(missing))
    assert coverage.contains(wanted) == (offsets([wanted]) <= offsets(covered))


@given(LISTS, st.integers(0, TOP + 2))
@example([OffsetRange(0, 5)], 5)
def test_the_contiguous_end_is_the_first_offset_that_is_not_covered(covered: list[OffsetRange], start: int) -> None:
    taken = offsets(covered)
    assert Coverage.of(covered).contiguous_end(start) == next(
        offset for offset in range(start, TOP + 4) if offset not in taken
    )


@given(ranges(), ranges())
def test_intersection_is_that_of_sets(one: OffsetRange, other: OffsetRange) -> None:
    both = one.intersection(other)
    assert offsets([both] if both else []) == offsets([one]) & offsets([other])
    assert both is None or both.span


@given(LISTS)
def test_coverage_survives_its_codec(covered: list[OffsetRange]) -> None:
    made = Coverage.of(covered)
    assert Coverage.decode(made.encode()) == made


def test_the_codec_is_a_list_of_pairs() -> None:
    assert Coverage.of([OffsetRange(7, 9), OffsetRange(0, 3), OffsetRange(3, 4)]).encode() == [[0, 4], [7, 9]]


@pytest.mark.parametrize(
    "broken", [[[1]], [[1, 2, 3]], [1, 2], [[3, 1]], [[-1, 2]], ["12"], [[1.5, 2]], [[True, 2]], [["1", "2"]], 7, None]
)
def test_what_is_not_a_list_of_pairs_is_a_value_error(broken: object) -> None:
    with pytest.raises(ValueError, match=r"not (an offset range|coverage)"):
        Coverage.decode(broken)


@given(ranges(), st.integers(0, TOP + 1))
def test_a_range_is_half_open(each: OffsetRange, offset: int) -> None:
    assert (offset in each) == (offset in range(each.from_, each.until))
    assert each.span == len(range(each.from_, each.until))


@pytest.mark.parametrize(("from_", "until"), [(-1, 3), (4, 3), (0, MAX_OFFSET + 1)])
def test_an_impossible_range_is_refused(from_: int, until: int) -> None:
    with pytest.raises(ValueError, match=rf"not an offset range: \[{from_}, {until}\)"):
        OffsetRange(from_, until)


@pytest.mark.parametrize(("topic", "partition"), [("", 0), ("orders", -1), ("orders", 2**31)])
def test_an_impossible_topic_partition_is_refused(topic: str, partition: int) -> None:
    with pytest.raises(ValueError, match="not a topic-partition"):
        TopicPartition(topic, partition)


def test_values_print_as_a_log_shows_them() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"
    assert str(OffsetRange(120, 480)) == "[120, 480)"
    assert str(Coverage.of([OffsetRange(9, 12), OffsetRange(0, 4)])) == "[0, 4) [9, 12)"
    assert str(Coverage()) == "nothing"


def test_nothing_can_be_read_of_a_log_that_starts_behind_its_end() -> None:
    assert (readable(2, 5), readable(5, 5), readable(7, 5)) == (OffsetRange(2, 5), OffsetRange(5, 5), OffsetRange(5, 5))
