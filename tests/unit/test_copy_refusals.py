"""Refused records in a copy, step by step."""

from __future__ import annotations

import pytest

from tests.support.simulated_copy import copier, task
from tests.support.simulated_target import World, opened


def test_a_refusal_that_names_no_record_halves_the_chunk_until_it_does() -> None:
    world = World(list(range(10)), opened(), 4, refused_late={6})
    result = copier(world).copy(task(0, 10))
    assert result.error == "the record at offset 6 is refused"
    assert result.remedy == "raise the limit"
    assert (result.copied, result.retriable, result.fenced) == (6, False, False)
    assert world.target.visible() == [0, 1, 2, 3, 4, 5]
    # 4, 5, 6, 7 are refused, 4 and 5 are committed, 6 is refused alone; the last session finds nothing left to copy.
    assert (world.sizes, world.trace.count("session")) == ([4, 4, 2, 1], 3)


@pytest.mark.parametrize("refused", [0, 1, 511, 777, 1022, 1023])
def test_naming_a_refused_record_takes_a_number_of_chunks_that_grows_with_the_logarithm(refused: int) -> None:
    world = World(list(range(2048)), opened(), 1024, refused_late={1024 + refused})
    result = copier(world).copy(task(0, 2048))
    assert result.error == f"the record at offset {1024 + refused} is refused"
    assert world.target.visible() == list(range(1024 + refused))
    assert len(world.sizes) <= 2 + 11
    assert sum(world.sizes) <= 2 * 1024 + 1024  # what is sent again for it is at most one chunk's records


def test_a_refusal_that_names_its_record_needs_no_smaller_chunks() -> None:
    world = World(list(range(10)), opened(), 4, refused_at_once={6})
    assert copier(world).copy(task(0, 10)).error == "the record at offset 6 is refused"
    assert world.target.visible() == [0, 1, 2, 3, 4, 5]
    assert [name for name in world.trace if "session" in name] == ["session", "session"]


def test_the_first_record_of_a_range_refused_copies_nothing() -> None:
    world = World(list(range(10)), opened(), 4, refused_late={0})
    result = copier(world).copy(task(0, 10))
    assert result.error == "the record at offset 0 is refused"
    assert (result.copied, world.target.visible(), world.target.receipts) == (0, [], {})


def test_an_earlier_record_that_the_broker_refuses_hides_behind_one_that_the_client_refuses() -> None:
    """The client's refusal of 6 comes at once, the broker's of 2 only when what lies before 6 is sent again."""
    world = World(list(range(10)), opened(), 8, refused_late={2}, refused_at_once={6})
    assert copier(world).copy(task(0, 10)).error == "the record at offset 2 is refused"
    assert world.target.visible() == [0, 1]


def test_a_refusal_that_does_not_come_again_is_no_error() -> None:
    world = World(list(range(10)), opened(), 4, refused_late={6})

    def heal(call: str) -> None:
        if world.trace.count("session") > 1:
            world.refused_late.clear()

    world.during = heal
    result = copier(world).copy(task(0, 10))
    assert (result.error, result.copied) == (None, 10)
    assert world.target.visible() == list(range(10))
