"""What travels between a run and Spark: unchanged, and readable by its owner alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.config import Copy
from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.ledger.entries import Ids, KafkaSegments, Receipt, Segment
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, TopicPartition
from kafka_replication.spark.jobs import COPY_RESULT, JOB, RESULT, VERIFY_RESULT, Job, JobResult, deal, write_private
from kafka_replication.verification.verify import VerifyResult, VerifyTask

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
COPIES = st.lists(st.builds(CopyTask, key=KEYS, range=RANGES, ids=IDS, generation=OFFSET, run_id=TEXT), max_size=2)
VERIFICATIONS = st.lists(
    st.builds(VerifyTask, KEYS, st.lists(RECEIPTS, max_size=2).map(tuple), st.sampled_from(["digest", "count"])),
    max_size=2,
)
CLIENT: st.SearchStrategy[dict[str, Any]] = st.dictionaries(TEXT, TEXT | st.integers(0, 9) | st.booleans(), max_size=3)
SETTINGS = st.builds(Copy, chunk_records=st.integers(1, 10_000_000), attempts=st.integers(1, 500))
JOBS = st.builds(
    Job,
    st.sampled_from(["copy", "verify"]),
    TEXT,
    TEXT,
    CLIENT,
    CLIENT,
    SETTINGS,
    COPIES,
    VERIFICATIONS,
    st.none() | st.integers(1, 9),
    st.none() | SECONDS,
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
RESULTS = st.builds(
    JobResult,
    st.lists(COPY_RESULTS, max_size=2),
    st.lists(VERIFY_RESULTS, max_size=2),
    st.none() | TEXT,
    TEXT,
    st.booleans(),
)


@given(JOBS)
def test_a_job_survives_its_file(job: Job) -> None:
    assert JOB.validate_json(JOB.dump_json(job)) == job


@given(RESULTS)
def test_a_result_survives_its_file(result: JobResult) -> None:
    assert RESULT.validate_json(RESULT.dump_json(result)) == result


@given(COPY_RESULTS, VERIFY_RESULTS)
def test_single_results_survive_the_way_back_from_an_executor(copied: CopyResult, verified: VerifyResult) -> None:
    assert COPY_RESULT.validate_json(COPY_RESULT.dump_json(copied)) == copied
    assert VERIFY_RESULT.validate_json(VERIFY_RESULT.dump_json(verified)) == verified


def test_what_is_read_back_can_be_calculated_with() -> None:
    key = PartitionKey("orders-dr", TopicPartition("orders", 3), "dr.orders")
    sent = VerifyResult(key=key, verified=Coverage.of([OffsetRange(0, 4), OffsetRange(6, 9)]))
    back = VERIFY_RESULT.validate_json(VERIFY_RESULT.dump_json(sent))
    assert back.verified.add(OffsetRange(4, 6)).encode() == [[0, 9]]
    assert back.key.transactional_id == key.transactional_id


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_a_private_file_is_readable_by_its_owner_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_private(tmp_path / "job.json", b"secret")
    finally:
        os.umask(before)
    mode = stat.S_IMODE((tmp_path / "job.json").stat().st_mode)
    assert mode & 0o077 == 0
    assert mode == 0o600 & ~umask


def test_a_leftover_that_everybody_may_read_does_not_make_the_next_file_readable(tmp_path: Path) -> None:
    leftover = tmp_path / "job.part"
    leftover.write_bytes(b"a much longer leftover of a run that was killed")
    leftover.chmod(0o644)
    write_private(tmp_path / "job.json", b"secret")
    assert stat.S_IMODE((tmp_path / "job.json").stat().st_mode) == 0o600
    assert (tmp_path / "job.json").read_bytes() == b"secret"


def test_a_private_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_private(path, b"the first, longer content")
    path.chmod(0o644)
    write_private(path, b"second")
    assert path.read_bytes() == b"second"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("tasks", "hands", "dealt"),
    [
        ([], 3, []),
        ([], None, []),
        ([0, 1, 2], None, [[0], [1], [2]]),
        ([0, 1, 2], 9, [[0], [1], [2]]),
        ([0, 1, 2, 3, 4], 2, [[0, 2, 4], [1, 3]]),
        ([0, 1, 2], 1, [[0, 1, 2]]),
    ],
)
def test_tasks_are_dealt_longest_first(tasks: list[int], hands: int | None, dealt: list[list[int]]) -> None:
    assert deal(tasks, hands) == dealt


@given(st.integers(0, 40), st.none() | st.integers(1, 10))
def test_every_task_is_dealt_once_and_evenly(count: int, hands: int | None) -> None:
    dealt = deal(range(count), hands)
    assert sorted(task for hand in dealt for task in hand) == list(range(count))
    assert len(dealt) == min(count, hands or count)
    assert all(dealt)
    assert max(map(len, dealt), default=0) - min(map(len, dealt), default=0) <= 1
    assert all(hand == sorted(hand) for hand in dealt)  # within a hand the longest still comes first
