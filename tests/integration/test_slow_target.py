"""A target behind a slow or a long line: chunks take the time that they may take, and a range ends all the same."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.copying.protocol import Copier
from kafka_replication.runtime import deadline
from kafka_replication.spark import jobs
from tests.support.jobs import InProcess, copy_once, submit
from tests.support.line import Behind
from tests.support.scenario import Rec, Scenario

# What a transaction may last is little, so that the tests are short: the same as a target that is 60 times as slow.
QUICK = {"chunk_records": 100_000, "transaction_timeout": 10, "stall_timeout": 20}


@pytest.fixture
def scene(behind: Behind, monkeypatch: pytest.MonkeyPatch) -> Behind:
    monkeypatch.setattr(deadline, "ATTEMPTS", 20)
    behind.settings["copy"] = QUICK
    return behind


def incompressible(count: int, size: int = 1_000, first: int = 0) -> list[Rec]:
    return [Rec(b"%d" % n, os.urandom(size), (), 1_700_000_000_000 + n) for n in range(first, first + count)]


def prepare(scene: Scenario, records: list[Rec]) -> None:
    scene.source.create(scene.topic)
    scene.target.create(scene.topic)
    scene.source.produce(scene.topic, records)


@pytest.mark.slow  # a row of the faults
def test_a_target_that_takes_200_kilobytes_a_second_gets_all_in_one_session(scene: Behind) -> None:
    """3 MB: as one chunk, which the settings would allow, they would outlive the transaction."""
    prepare(scene, incompressible(3_000))
    job = scene.copy_job()
    scene.proxy.throttle(200_000)
    result = copy_once(job, InProcess(between=lambda: scene.proxy.throttle(None)))
    assert (result.error, result.copied, result.sessions) == (None, 3_000, 1)
    scene.assert_copied()


@pytest.mark.slow
@pytest.mark.parametrize("each", [20, 200], ids=["packed", "as they are stored"])
def test_whole_batches_go_in_requests_that_a_slow_target_answers_in_time(scene: Behind, each: int) -> None:
    """1.2 MB in batches of 20 or 200 kB: packed into one, or all sent at once, they would outlive the transaction."""
    scene.settings["copy"] = {**QUICK, "engine": "batch"}
    scene.source.create(scene.topic)
    scene.target.create(scene.topic)
    scene.source.produce(scene.topic, incompressible(1_200), linger_ms=500, batch_num_messages=each)
    job = scene.copy_job()
    scene.proxy.throttle(100_000)
    result = copy_once(job, InProcess(between=lambda: scene.proxy.throttle(None)))
    assert (result.error, result.copied, result.sessions, result.turns) == (None, 1_200, 1, ())
    scene.assert_copied()


@pytest.mark.slow
def test_a_line_that_becomes_slow_in_mid_chunk_is_survived(scene: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    """All was sent to the client already when the line became slow: the chunk is given up, halved, and goes through."""
    monkeypatch.setattr("kafka_replication.kafka.producers.FIRST", 64 << 20)
    prepare(scene, incompressible(3_000))
    job = scene.copy_job()
    scene.proxy.throttle(200_000)
    result = copy_once(job, InProcess(between=lambda: scene.proxy.throttle(None)))
    assert (result.error, result.copied) == (None, 3_000)
    assert result.sessions > 1
    scene.assert_copied()


def test_a_run_keeps_to_its_throughput_limit(scene: Behind) -> None:
    """2 MB, copied and read back at 500 kB/s, in chunks that end in their time."""
    prepare(scene, incompressible(2_000))
    report = scene.run(copy={**QUICK, "throughput_limit": 500_000})
    assert report.outcome == "done", report.table()
    (result,) = scene.store.outcomes(report.run_id)
    assert result.seconds > 3
    scene.assert_copied()


@pytest.mark.slow
def test_a_line_of_200_ms_there_and_back_names_a_refused_record_after_a_logarithm_of_sessions(scene: Behind) -> None:
    records = incompressible(500)
    at = 345
    records[at] = Rec(b"large", os.urandom(50_000))
    prepare(scene, records)
    scene.target.set(scene.topic, max_message_bytes="20000")
    job = scene.copy_job()
    scene.proxy.delay(0.1)
    result = copy_once(job, InProcess(between=lambda: scene.proxy.delay(0)))
    assert result.error is not None and f"the record at offset {at} " in result.error
    assert (result.copied, result.retriable) == (at, False)
    assert result.sessions <= 2 * 9


@pytest.mark.slow
def test_a_target_that_goes_away_ends_the_range_in_time_and_the_next_run_goes_on(
    scene: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 attempts would take 40 minutes. What was committed before stays."""
    prepare(scene, incompressible(300))
    monkeypatch.setattr(jobs, "WITHOUT_PROGRESS", 6.0)
    job = replace(scene.copy_job().copying(chunk_records=100), attempts=500)
    at_work = Copier.copy

    def copy(copier: Copier, task: CopyTask) -> CopyResult:
        copier.progress = lambda task, result: scene.proxy.refuse()
        return at_work(copier, task)

    monkeypatch.setattr(Copier, "copy", copy)
    (result,) = submit(job)
    monkeypatch.undo()
    scene.proxy.accept()
    assert result.copied is not None and result.read_back is not None
    assert (result.copied.copied, result.copied.retriable) == (100, True)
    assert result.copied.stop is not None and result.copied.stop.error_id == "no-progress"
    assert result.read_back.error is not None and result.read_back.retriable
    (healed,) = submit(job)
    assert healed.copied is not None and healed.read_back is not None
    assert (healed.copied.error, healed.read_back.error) == (None, None)
    assert healed.copied.copied == 200 and healed.read_back.records == 300
    scene.assert_copied()
