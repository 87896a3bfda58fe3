"""Small ranges share a worker: which ones, how many at a time, and what becomes of one that takes long."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.copying.engine import CopyTask
from kafka_replication.ledger.entries import Ids
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.spark import small_ranges
from kafka_replication.spark.jobs import LARGEST_BUNDLE, SMALL, RangeResult, RangeTask, bundles, longest_first
from kafka_replication.spark.small_ranges import ATTEMPTS, BundleWorker, frugal
from tests.support.jobs import job_with, reading
from tests.support.waiting import SAFETY


def task(number: int, span: int | None = 1) -> RangeTask:
    """``span`` None: it only reads back."""
    key = PartitionKey("orders-dr", TopicPartition("orders", number), "orders")
    copy = CopyTask(key=key, range=OffsetRange(0, span or 0), ids=Ids("c", "s", "t"), generation=0, run_id="run-1")
    return RangeTask(copy=None if span is None else copy, read_back=reading(key))


@given(st.lists(st.one_of(st.none(), st.integers(1, 3 * SMALL)), max_size=200), st.integers(1, 8))
def test_every_task_is_in_one_bundle_and_only_small_copies_share_one(spans: list[int | None], slots: int) -> None:
    tasks = longest_first([task(number, span) for number, span in enumerate(spans)])
    dealt = bundles(tasks, slots)
    assert sorted(one.key.source.partition for bundle in dealt for one in bundle) == list(range(len(spans)))
    for bundle in dealt:
        assert 1 <= len(bundle) <= LARGEST_BUNDLE
        assert len(bundle) == 1 or all(one.copy and one.copy.range.span <= SMALL for one in bundle)
    small = sum(1 for span in spans if span is not None and span <= SMALL)
    shared = [bundle for bundle in dealt if bundle[0].copy and bundle[0].copy.range.span <= SMALL]
    assert len(shared) >= min(small, slots) // 2, "the slots share the small ones"


@pytest.mark.parametrize(
    ("partitions", "parallelism", "at_once"),
    [
        (1, None, 8),
        (1_000, None, 8),
        (3_000, None, 4),
        (5_000, None, 2),
        (100_000, None, 1),
        (1_000, 6, 3),
        (5_000, 6, 2),
    ],
)
def test_fewer_share_a_worker_where_each_client_knows_many_partitions(
    partitions: int, parallelism: int | None, at_once: int
) -> None:
    job = job_with([task(0), task(partitions - 1)], spark={"parallelism": parallelism})
    assert small_ranges.at_once(job, slots=2) == at_once


def done(one: RangeTask) -> RangeResult:
    return RangeResult(key=one.key)


def test_each_thread_keeps_its_tools_for_the_next_bundle() -> None:
    made: list[object] = []
    meet = threading.Barrier(3)

    def work_on(_: object, one: RangeTask) -> RangeResult:
        meet.wait(SAFETY)  # all three are at work at the same time
        return done(one)

    def tools(_: threading.Event) -> object:
        made.append(object())
        return made[-1]

    together = BundleWorker(3, tools, work_on)
    for _ in range(4):
        assert [result.key.source.partition for result in together.work([task(n) for n in range(6)])] == list(range(6))
    assert len(made) == 3


def test_one_that_takes_long_is_stopped_and_those_behind_it_are_not_begun() -> None:
    """The next bundle has its own time and tools."""
    begun: list[int] = []

    def work_on(stop: threading.Event, one: RangeTask) -> RangeResult:
        begun.append(one.key.source.partition)
        if one.key.source.partition == 1:
            assert stop.wait(SAFETY)
        return done(one)

    together = BundleWorker(1, lambda stop: stop, work_on)
    results = together.work([task(number) for number in range(4)], quiet=0.05)
    assert begun == [0, 1] and [result.key.source.partition for result in results] == [0, 1]
    assert len(together.work([task(2), task(3)])) == 2


def test_one_that_never_ends_holds_no_result_back() -> None:
    hung = threading.Event()

    def work_on(_: threading.Event, one: RangeTask) -> RangeResult:
        if one.key.source.partition == 1:
            assert hung.wait(SAFETY)
        return done(one)

    together = BundleWorker(2, lambda stop: stop, work_on)
    try:
        results = together.work([task(number) for number in range(4)], quiet=0.05, to_end=0.05)
        assert sorted(result.key.source.partition for result in results) == [0, 2, 3]
        assert together.at_work == {task(1).key}
        assert len(together.work([task(4), task(5)])) == 2
    finally:
        hung.set()


def test_a_signal_stops_the_threads_before_it_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[bool] = []
    begun = threading.Barrier(3)

    def work_on(stop: threading.Event, one: RangeTask) -> RangeResult:
        begun.wait(SAFETY)
        stopped.append(stop.wait(SAFETY))
        return done(one)

    def leave(*_: object) -> None:
        monkeypatch.undo()
        begun.wait(SAFETY)
        raise SystemExit(143)

    monkeypatch.setattr(small_ranges, "wait", leave)
    with pytest.raises(SystemExit):
        BundleWorker(2, lambda stop: stop, work_on).work([task(0), task(1)])
    assert stopped == [True, True]


def test_a_range_in_company_has_few_attempts_and_small_buffers_unless_the_connection_says_otherwise() -> None:
    source = {"bootstrap.servers": "s", "queued.max.messages.kbytes": 123}
    job = job_with(source=source, target={"bootstrap.servers": "t"})
    here = frugal(job)
    assert here.attempts == ATTEMPTS and here.source["queued.max.messages.kbytes"] == 123
    assert here.target["queue.buffering.max.kbytes"] < 64 << 10
