"""The comparison of two engines on the first chunks of a range."""

from __future__ import annotations

import pytest

from kafka_replication.copying.engine import Chunk
from kafka_replication.copying.trial import LARGE, LEAST, MOST, SHORTEST, Trial
from kafka_replication.ledger.placement import KafkaSegments
from kafka_replication.model.offsets import OffsetRange

SMALL = 16_000


def chunk(batch_bytes: int = SMALL, size: int = 1_000_000, count: int = MOST) -> Chunk:
    return Chunk(
        range=OffsetRange(0, count),
        count=count,
        bytes=size,
        digest="",
        placement=KafkaSegments(),
        leader_epoch=None,
        batch_bytes=batch_bytes,
    )


def trial(span: int = 1_000_000, **more: dict[str, bool]) -> Trial:
    return Trial(topic="orders", partition=3, span=span, **more)


def speeds(found: Trial, stored: float, decoded: float) -> list[bool]:
    """Give it four chunks, of which the second one of each engine takes so many seconds. Return whose turn it was."""
    turns = []
    for seconds in (9.0, stored, 9.0, decoded):
        rival = found.is_for_rival
        turns.append(rival)
        found.measured(chunk(0 if rival else SMALL), seconds)
    return turns


@pytest.mark.parametrize(("stored", "decoded"), [(1.0, 2.0), (2.0, 1.0)])
def test_the_faster_one_of_the_second_chunks_copies_the_rest(stored: float, decoded: float) -> None:
    found = trial()
    assert speeds(found, stored, decoded) == [False, False, True, True]
    assert found.is_for_rival == (decoded < stored)
    assert found.sample is None
    found.measured(chunk(), 100.0)
    assert found.is_for_rival == (decoded < stored), "what comes later decides nothing"


def test_speed_is_bytes_in_a_second() -> None:
    found = trial()
    for size in (1, 4_000_000, 1, 3_000_000):
        found.measured(chunk(size=size), 1.0)
    assert not found.is_for_rival


def test_large_batches_are_not_compared() -> None:
    found = trial()
    found.measured(chunk(LARGE), 1_000.0)
    assert (found.is_for_rival, found.sample) == (False, None)


def test_small_batches_of_a_short_range_are_decoded() -> None:
    found = trial(SHORTEST - 1)
    found.measured(chunk(LARGE - 1), 0.001)
    assert (found.is_for_rival, found.sample) == (True, None)


def test_a_first_chunk_that_ends_before_a_large_batch_decides_nothing() -> None:
    found = trial(5_000)
    found.measured(chunk(100, 60, 1), 0.1)
    found.measured(chunk(LARGE), 0.1)
    assert (found.is_for_rival, found.sample) == (False, None)


def test_offsets_without_records_are_not_measured() -> None:
    found = trial()
    for _ in range(5):
        found.measured(chunk(0, 0, 0), 1.0)
    assert not found.is_for_rival
    assert speeds(found, 2.0, 1.0) == [False, False, True, True]


def test_the_next_partition_of_the_topic_knows_the_outcome() -> None:
    winners: dict[str, bool] = {}
    first, other = trial(winners=winners), trial(winners=winners)
    assert other.sample is not None
    speeds(first, 2.0, 1.0)
    assert winners == {"orders": True}
    later = trial(winners=winners)
    assert (later.is_for_rival, later.sample) == (True, None)


@pytest.mark.parametrize(("span", "sample"), [(1, LEAST), (100_000, 5_000), (10_000_000, MOST)])
def test_the_measured_part_is_small(span: int, sample: int) -> None:
    assert trial(span).sample == sample
