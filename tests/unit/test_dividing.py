"""Which chunks a sample draws, how audits are divided into tasks, and how the findings of parts become one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.kafka.audit import pieces
from kafka_replication.ledger.entries import Receipt
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.runs import audit_choosing as parts_of_audit
from kafka_replication.runs.audit_choosing import PART_BYTES, PART_OFFSETS, parts
from kafka_replication.runs.audit_tasks import AuditedPart, divided
from kafka_replication.spark.jobs import AUDITED
from kafka_replication.verification.auditing import LISTED, Audited, Findings, Sample, Size, Stretch, drawn
from kafka_replication.verification.matching import Difference, Kind
from tests.unit.test_audit import receipt

KEY = PartitionKey("orders-dr", TopicPartition("orders", 3), "dr.orders")


def chunks(count: int, *, delivered: bool = False) -> list[Receipt]:
    """Of ten offsets each, one behind the other on both sides."""
    made = [receipt(10 * n, 10 * n + 10, (11 * n, 11 * n + 9)) for n in range(count)]
    return [replace(one, after=11 * n) for n, one in enumerate(made)] if delivered else made


@given(st.integers(1, 30), st.integers(0, 40), st.integers(0, 2**31))
def test_a_sample_has_so_many_chunks_in_source_order_and_each_time_the_same(most: int, count: int, seed: int) -> None:
    all_ = chunks(count)
    sample = Sample(most, seed).of(KEY, all_)
    assert len(sample) == min(most, count) and sample == sorted(sample, key=lambda one: one.range)
    assert sample == Sample(most, seed).of(KEY, all_[::-1])
    later = Sample(most, seed).of(KEY, chunks(count + 1))
    assert len([one for one in sample if one not in later]) <= 1


def test_another_seed_and_another_partition_draw_others() -> None:
    all_, other = chunks(100), replace(KEY, source=TopicPartition("orders", 4))
    draws = [Sample(5, seed).of(key, all_) for seed, key in ((1, KEY), (2, KEY), (1, other))]
    assert draws[0] != draws[1] and draws[0] != draws[2]
    often = [one.range for seed in range(500) for one in Sample(1, seed).of(KEY, all_)]
    assert len(set(often)) > 90, "every chunk has its chance"


@given(st.integers(1, 9), st.integers(0, 20), st.integers(0, 1000))
def test_chunks_without_transactions_are_drawn_as_neighbours_on_the_target(most: int, count: int, seed: int) -> None:
    sample = Sample(most, seed).of(KEY, chunks(count, delivered=True))
    numbers = [one.range.from_ // 10 for one in sample]
    assert len(numbers) == min(most, count)
    assert not numbers or numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_what_a_person_asks_for() -> None:
    assert drawn(None, None) is None
    assert drawn(3, 5) == Sample(3, 5)
    assert {sample.seed for _ in range(9) if (sample := drawn(3, None))} != {0}
    with pytest.raises(BadInput, match="without a sample"):
        drawn(None, 5)
    with pytest.raises(ValueError, match="is none"):
        Sample(0, 5)


@given(st.lists(st.builds(Size, st.just(1), st.integers(0, PART_OFFSETS), st.integers(0, PART_BYTES)), max_size=30))
def test_parts_are_the_whole_and_none_is_too_large(sizes: list[Size]) -> None:
    made = list(parts(sizes, lambda size: size))
    assert [size for some in made for size in some] == sizes and all(made)
    for some in made:
        whole = sum(some, Size())
        assert len(some) == 1 or (whole.records <= PART_OFFSETS and whole.bytes <= PART_BYTES)
    for some, following in itertools.pairwise(made):
        more = sum(some, following[0])
        assert more.records > PART_OFFSETS or more.bytes > PART_BYTES, "no part is smaller than it has to be"


def test_the_findings_about_parts_are_added_up_and_said_once() -> None:
    whole = Findings()
    for number in (2, 1):
        part = Findings(chunks=number, source_records=10, notes=["a note"], errors=[] if number == 2 else ["gone"])
        part.differ([Difference(Kind.MISSING, number, None, b"\xff\x00")])
        part.whole.append(Stretch(Kind.EXTRA, None, OffsetRange(number, number + 1), 1))
        part.impure = OffsetRange(10 * number, 10 * number + 5)
        (sent,) = AUDITED.validate_json(AUDITED.dump_json([Audited(id=7, findings=part)]))
        assert sent == Audited(id=7, findings=part), "as it comes from a worker"
        whole.add(part)
    assert (whole.chunks, whole.source_records, whole.counts[Kind.MISSING]) == (3, 20, 2)
    assert (whole.notes, whole.errors, whole.impure) == (["a note"], ["gone"], OffsetRange(10, 15))
    assert [one.source for one in whole.single] == [2, 1] and len(whole.whole) == 2


def test_no_more_differences_are_listed_of_all_parts_than_of_one() -> None:
    whole = Findings()
    for first in (0, LISTED - 1):
        part = Findings()
        part.differ(Difference(Kind.EXTRA, None, first + n) for n in range(LISTED - 1))
        whole.add(part)
    assert (len(whole.single), whole.unlisted, whole.counts[Kind.EXTRA]) == (LISTED, LISTED - 2, 2 * LISTED - 2)


@given(st.lists(st.integers(0, 6), max_size=40), st.integers(1, 12), st.integers(0, 12), st.integers(0, 12))
def test_a_target_partition_is_read_in_parts_each_claim_and_each_offset_between_once(
    owners: list[int], most: int, before: int, behind: int
) -> None:
    """Each offset belongs to one of six chunks, which lie between each other, or to nobody."""
    log = OffsetRange(min(before, len(owners)), len(owners) + behind)
    own = {
        owner: Coverage.of(OffsetRange(n, n + 1) for n, one in enumerate(owners) if one == owner) for owner in owners
    }
    chunk = receipt(0, 1, (0, 1))
    here = [AuditedPart((KEY, 1, owner, 0), offsets, chunk) for owner, offsets in own.items() if owner]
    with mock.patch.object(parts_of_audit, "PART_OFFSETS", most):
        found = list(divided(here, log))
    wanted = [[one for one in some if one.receipt] for some, _ in found]
    assert sorted(one.name for some in wanted for one in some) == sorted(one.name for one in here)
    assert all(len(some) == 1 or sum(one.offsets.span for one in some) <= most for some in wanted if some)
    between = [
        offset
        for some, window in found
        for number, range_ in pieces([one.claim for one in some], log)
        if number is None and (searched := range_.intersection(window))
        for offset in range(searched.from_, searched.until)
    ]
    assert between == [n for n in range(log.from_, log.until) if n >= len(owners) or not owners[n]]
