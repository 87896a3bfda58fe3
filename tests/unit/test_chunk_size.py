"""How large the next chunk may be, after chunks that failed, were committed, or were refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.copying.engine import GROW_AFTER, ChunkSize


def test_a_chunk_that_failed_is_halved_from_what_was_written_of_it() -> None:
    size = ChunkSize(100_000)
    assert size.records == 100_000
    size.failed(6_000)
    assert size.records == 3_000
    size.failed(3_000)
    assert size.records == 1_500


def test_a_failure_before_anything_was_written_says_nothing_about_the_size() -> None:
    size = ChunkSize(100)
    size.failed(0)
    assert size.records == 100


def test_there_is_always_one_record() -> None:
    size = ChunkSize(100)
    for _ in range(20):
        size.failed(size.records)
    assert size.records == 1


def test_it_grows_again_up_to_the_setting() -> None:
    size = ChunkSize(100)
    size.failed(60)
    sizes = []
    for _ in range(3 * GROW_AFTER):
        sizes.append(size.records)
        size.committed(size.records)
    assert sizes == [30] * GROW_AFTER + [60] * GROW_AFTER + [100] * GROW_AFTER


def test_the_search_for_a_refused_record_never_takes_more_than_could_be_sent() -> None:
    size = ChunkSize(1_000)
    size.failed(200)
    size.refused(1_000)
    assert size.records == 100
    size.stop_searching()
    assert size.records == 100


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_a_refused_record_is_alone_after_a_logarithm_of_chunks(most: int, at: int) -> None:
    """It is the one ``at`` this place of the first chunk."""
    size, left, chunks = ChunkSize(most), at % most, 1
    assert size.refused(most)
    while size.records > 1 or left:
        chunks += 1
        tried = size.records
        if left < tried:
            assert size.refused(tried) or tried == 1
        else:
            size.committed(tried)
            left -= tried
        assert chunks <= most.bit_length() + 2 * GROW_AFTER
