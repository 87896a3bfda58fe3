"""The map of a chunk's holes: exact, or coarser with bounds that hold."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.ledger import offset_map
from kafka_replication.ledger.offset_map import OffsetMap, WrittenOffsets
from kafka_replication.model.errors import LedgerUnreadable

CHUNK = 1_000_000


@st.composite
def written(draw: st.DrawFn) -> tuple[list[int], int]:
    """The offsets of a chunk's records, and one past the chunk."""
    runs = draw(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), min_size=1, max_size=30))
    offsets, next_ = list[int](), CHUNK
    for skipped, kept in runs:
        offsets += range(next_ + skipped, next_ + skipped + kept)
        next_ += skipped + kept
    return offsets, next_ + draw(st.integers(0, 3))


def map_of(offsets: list[int], until: int, parts: int = 3) -> OffsetMap | None:
    adding, step = WrittenOffsets(), max(1, len(offsets) // parts)
    for start in range(0, len(offsets), step):
        adding.add_records([(offset, 0, None, None, None) for offset in offsets[start : start + step]])
    return adding.map(CHUNK, until)


@given(written(), st.integers(0, 20_000))
def test_an_exact_map_counts_the_records_before_an_offset(chunk: tuple[list[int], int], further: int) -> None:
    offsets, until = chunk
    its, asked = map_of(offsets, until), min(CHUNK + further, until)
    if its is None:
        assert len(offsets) == until - CHUNK
        return
    assert its.every == 1
    assert its.before(CHUNK, asked) == (bisect_left(offsets, asked),) * 2


@given(written(), st.integers(0, 20_000))
def test_a_coarse_map_says_at_least_and_at_most(chunk: tuple[list[int], int], further: int) -> None:
    offsets, until = chunk
    asked = min(CHUNK + further, until)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_map, "MOST", 60)
        its = map_of(offsets, until)
    if its is None or its.every == 1:
        return
    assert len(its.numbers) <= 60
    least, most = its.before(CHUNK, asked)
    assert least <= bisect_left(offsets, asked) <= most < least + its.every


def test_a_chunk_without_holes_or_without_records_has_none() -> None:
    assert map_of(list(range(CHUNK, CHUNK + 50)), CHUNK + 50) is None
    assert map_of([], CHUNK + 50) is None


def test_a_map_is_small() -> None:
    """Transactions of 100 records, and the marker behind each of them."""
    its = map_of([CHUNK + offset for offset in range(101_000) if offset % 101 != 100], CHUNK + 101_000)
    assert its is not None
    assert len(its.numbers) < 200


@pytest.mark.parametrize("numbers", ["!", "AAAA", ""])
def test_a_damaged_one_is_named(numbers: str) -> None:
    with pytest.raises(LedgerUnreadable, match="offset map"):
        OffsetMap(numbers).before(0, 5)
