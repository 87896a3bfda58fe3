"""What travels between a run and Spark arrives unchanged."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.config import Copy
from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.ledger.entries import Ids, Receipt
from kafka_replication.ledger.placement import KafkaSegments, Segment
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.spark.jobs import (
    ANSWER,
    BUNDLE,
    JOB,
    RESULTS,
    Answer,
    Job,
    JobEnd,
    RangeResult,
    RangeTask,
    longest_first,
)
from kafka_replication.verification.read_back import ReadBackTask
from kafka_replication.verification.verify import VerifyResult
from tests.support.jobs import job_with, reading

TEXT = st.text(max_size=5)
OFFSET = st.integers(0, MAX_OFFSET)
SECONDS = st.floats(0, 1e6)
KEYS = st.builds(
    PartitionKey, TEXT, st.builds(TopicPartition, st.text("ab.", min_size=1, max_size=4), st.integers(0, 99)), TEXT
)
RANGES = st.tuples(OFFSET, OFFSET).map(lambda pair: OffsetRange(min(pair), max(pair)))
COVERAGES = st.lists(RANGES, max_size=3).map(Coverage.of)
IDS = st.builds(Ids, TEXT, TEXT, TEXT)
SEGMENTS = st.lists(
    st.builds(Segment, partition=OFFSET, first=OFFSET, last=OFFSET, count=OFFSET, digest=TEXT), max_size=2
).map(tuple)
RECEIPTS = st.builds(
    Receipt,
    generation=OFFSET,
    range=RANGES,
    count=OFFSET,
    bytes=OFFSET,
    digest=TEXT,
    digest_kind=TEXT,
    engine=TEXT,
    placement=SEGMENTS.map(KafkaSegments),
    ids=IDS,
    run_id=TEXT,
    time=TEXT,
)
COPIES = st.builds(CopyTask, key=KEYS, range=RANGES, ids=IDS, generation=OFFSET, run_id=TEXT)
READINGS = st.builds(
    ReadBackTask,
    key=KEYS,
    generation=OFFSET,
    verified=COVERAGES,
    receipts_from=st.none() | OFFSET,
    level=st.sampled_from(["digest", "count"]),
    kept_seconds=OFFSET,
)
TASKS = st.builds(RangeTask, copy=st.none() | COPIES, read_back=READINGS)
CLIENT: st.SearchStrategy[dict[str, Any]] = st.dictionaries(TEXT, TEXT | st.integers(0, 9) | st.booleans(), max_size=3)
REPLICATIONS = st.builds(
    lambda copying, parallelism, start: (
        job_with(
            copy=copying, spark={"parallelism": parallelism}, start_from=start, transform="shop.orders:masked"
        ).replication
    ),
    st.builds(Copy, chunk_records=st.integers(1, 10_000_000)),
    st.none() | st.integers(1, 9),
    st.sampled_from(["earliest", "latest", "2030-01-31T06:00:00.5+02:00"]),
)
JOBS = st.builds(
    Job,
    replication=REPLICATIONS,
    source=CLIENT,
    target=CLIENT,
    tasks=st.lists(TASKS, max_size=2),
    attempts=st.integers(1, 500),
    seconds=st.none() | SECONDS,
)
COPY_RESULTS = st.builds(
    CopyResult,
    key=KEYS,
    range=RANGES,
    copied=OFFSET,
    bytes=OFFSET,
    chunks=OFFSET,
    sessions=OFFSET,
    seconds=SECONDS,
    error=st.none() | TEXT,
    remedy=TEXT,
    fenced=st.booleans(),
    retriable=st.booleans(),
)
VERIFY_RESULTS = st.builds(
    VerifyResult,
    key=KEYS,
    verified=COVERAGES,
    records=OFFSET,
    bytes=OFFSET,
    seconds=SECONDS,
    error=st.none() | TEXT,
    remedy=TEXT,
    retriable=st.booleans(),
)
RANGE_RESULTS = st.builds(RangeResult, key=KEYS, copied=st.none() | COPY_RESULTS, read_back=st.none() | VERIFY_RESULTS)
ENDS = st.builds(JobEnd, error=st.none() | TEXT, remedy=TEXT, retriable=st.booleans())
ANSWERS = st.builds(Answer, result=st.none() | RANGE_RESULTS, end=st.none() | ENDS)


@given(JOBS)
def test_a_job_survives_its_way_to_the_driver(job: Job) -> None:
    assert JOB.validate_json(JOB.dump_json(job)) == job


@given(ANSWERS)
def test_an_answer_survives_its_way_to_the_launcher(answer: Answer) -> None:
    assert ANSWER.validate_json(ANSWER.dump_json(answer)) == answer


@given(TASKS, RANGE_RESULTS)
def test_a_task_survives_its_way_to_an_executor_and_its_result_the_way_back(
    task: RangeTask, result: RangeResult
) -> None:
    assert BUNDLE.validate_json(BUNDLE.dump_json([task])) == [task]
    assert RESULTS.validate_json(RESULTS.dump_json([result])) == [result]


def test_what_is_read_back_can_be_calculated_with() -> None:
    key = PartitionKey("orders-dr", TopicPartition("orders", 3), "dr.orders")
    sent = VerifyResult(key=key, verified=Coverage.of([OffsetRange(0, 4), OffsetRange(6, 9)]))
    [result] = RESULTS.validate_json(RESULTS.dump_json([RangeResult(key=key, read_back=sent)]))
    assert (back := result.read_back) is not None
    assert back.verified.add(OffsetRange(4, 6)).encode() == [[0, 9]]
    assert back.key.transactional_id == key.transactional_id


def test_what_only_airflow_reads_stays_where_it_is() -> None:
    """A worker has no croniter, and nothing to do with the arguments of a notifier."""
    alerts = {"notifiers": [{"class": "shop.alerts.Oncall", "arguments": {"room": "b7"}}]}
    interval: dict[str, Any] = {"schedule": "@hourly", "progress": "interval", "start_from": "2030-01-31T06:00:00Z"}
    sent = JOB.dump_json(job_with(alerts=alerts, description="# Orders", **interval))
    assert not any(word in sent for word in (b"hourly", b"b7", b"# Orders"))
    assert JOB.validate_json(sent).replication == job_with(start_from="2030-01-31T06:00:00Z").replication


def test_a_share_of_the_least_limit_reaches_a_worker() -> None:
    sent = JOB.dump_json(replace(job_with(copy={"throughput_limit": 1_000}), at_a_time=8))
    received = JOB.validate_json(sent)
    assert received.shared(received.at_a_time).replication.copying.throughput_limit == 125


@given(st.lists(TASKS, max_size=6))
def test_the_longest_copy_is_first_and_what_is_only_read_back_last(tasks: list[RangeTask]) -> None:
    spans = [task.copy.range.span if task.copy else 0 for task in longest_first(tasks)]
    assert spans == sorted(spans, reverse=True)


@given(TASKS)
def test_a_task_whose_worker_died_has_one_retriable_error(task: RangeTask) -> None:
    result = task.died("Python worker exited", "run again")
    errors = [each for each in (result.copied, result.read_back) if each is not None]
    assert result.key == task.key
    assert [each.retriable and "Python worker exited" in str(each.error) and bool(each.remedy) for each in errors] == [
        True
    ]


READ = """
import sys
from pathlib import Path
import psutil
from kafka_replication.spark.jobs import JOB
small, large = (Path(name).read_bytes() for name in sys.argv[1:])
JOB.validate_json(small)
before = psutil.Process().memory_info().rss
kept = JOB.validate_json(large)
print((psutil.Process().memory_info().rss - before) / len(large))
"""


def test_a_job_of_many_ranges_is_received_in_little_memory(tmp_path: Path) -> None:
    """Of a union of jobs and audits, pydantic would keep what does not fit of each range."""
    files = []
    for ranges in (1, 3_000):
        keys = [PartitionKey("r", TopicPartition("orders", number), "orders") for number in range(ranges)]
        tasks = [RangeTask(read_back=reading(key)) for key in keys]
        job = job_with(tasks)
        files.append(tmp_path / f"{ranges}.json")
        files[-1].write_bytes(JOB.dump_json(job))
    told = subprocess.run([sys.executable, "-c", READ, *files], capture_output=True, text=True, check=True)
    assert float(told.stdout) < 25  # bytes for a byte of the message: 5, and above 60 with a union
