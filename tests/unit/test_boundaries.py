"""Data intervals: what a boundary is once it was resolved, and that intervals tile whatever Kafka says later."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_replication.model.errors import BadInput
from kafka_replication.watermarks.rules import check_interval, decide_boundary

NOW = datetime(2024, 1, 31, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a_boundary_stays_between_its_stored_neighbours() -> None:
    assert decide_boundary(50, None, None) == 50
    assert decide_boundary(50, 60, None) == 60
    assert decide_boundary(50, None, 40) == 40
    assert decide_boundary(50, 40, 60) == 50


def test_what_a_lost_boundary_would_leave_out_is_in_the_next_interval() -> None:
    assert decide_boundary(50, None, None, 20) == 20
    assert decide_boundary(50, 10, None, 20) == 20
    assert decide_boundary(50, 20, None, 20) == 50, "an interval that was not asked for yet lies between"
    assert decide_boundary(50, 30, None, 20) == 50
    assert decide_boundary(20, None, None, 20) == 20


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 1000)), min_size=1, max_size=30))
def test_boundaries_settled_in_any_order_never_cross(asked: list[tuple[int, int]]) -> None:
    stored: dict[int, int] = {}
    for time, found in asked:
        if time not in stored:
            before = max((offset for at, offset in stored.items() if at < time), default=None)
            after = min((offset for at, offset in stored.items() if at > time), default=None)
            stored[time] = decide_boundary(found, before, after)
    assert all(stored[one] <= stored[other] for one, other in pairwise(sorted(stored)))


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (None, None, "replication orders-dr copies data intervals .progress: interval., and this run has none"),
        (NOW - HOUR, None, "this run has none"),
        (NOW, NOW, "is empty"),
        (NOW - HOUR, NOW + HOUR, "has not ended yet"),
    ],
)
def test_a_run_without_a_finished_interval_is_refused_by_name(
    start: datetime | None, end: datetime | None, words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        check_interval("orders-dr", start, end, NOW)


def test_a_finished_interval_is_taken() -> None:
    assert check_interval("orders-dr", NOW - HOUR, NOW, NOW) == (NOW - HOUR, NOW)
