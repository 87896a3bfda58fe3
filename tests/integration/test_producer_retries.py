"""What becomes of records that the target does not acknowledge at once: each of Java's producer retries has its test here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.copying.protocol import Copier
from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.runtime import deadline
from kafka_replication.runtime.events import Event
from kafka_replication.verification.digests import key_digest
from tests.faults.proxy import END_TXN, PRODUCE
from tests.support.checker import read
from tests.support.jobs import InProcess, submit
from tests.support.line import Behind
from tests.support.received import Inbox
from tests.support.scenario import numbered, only
from tests.support.watching import events, watcher

BATCH = 20  # records: ten requests on their way, five at a time
FOR_EVER = 1_000_000


@pytest.fixture
def scene(behind: Behind) -> Behind:
    behind.client = {"batch.num.messages": BATCH, "reconnect.backoff.max.ms": 100}
    return behind


def prepare(scene: Behind, delivery: str = "exactly_once") -> None:
    scene.settings["delivery"] = delivery
    scene.source.create(scene.topic)
    scene.target.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10 * BATCH))


def told(caplog: pytest.LogCaptureFixture, event: Event) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "event", None) is event]


def test_a_commit_whose_answer_is_lost_is_asked_for_again(scene: Behind) -> None:
    """It was done. Whoever asks again is told so, and nothing is copied a second time."""
    prepare(scene)
    scene.settings["copy"] = {"chunk_records": 5 * BATCH}
    job, before = scene.copy_job(), scene.proxy.swallowed
    scene.proxy.swallow(END_TXN)
    (result,) = submit(job)
    assert result.copied is not None and result.read_back is not None
    assert scene.proxy.swallowed == before + 1
    assert (result.copied.error, result.copied.copied, result.copied.sessions) == (None, 10 * BATCH, 1)
    assert result.read_back.error is None
    scene.assert_copied()
    assert only(scene.run()).copied == 0 and scene.watermark() == 10 * BATCH


@pytest.mark.parametrize(
    "delivery", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.slow), "leader_ack"]
)
def test_an_answer_that_is_lost_keeps_partition_and_order(scene: Behind, delivery: str) -> None:
    """The batch is sent again. Its sequence is a duplicate, which counts as success, except where there are no sequences."""
    prepare(scene, delivery)
    job, before = scene.copy_job(), scene.proxy.swallowed
    scene.proxy.swallow(PRODUCE)
    ((result),) = submit(job)
    assert result.copied is not None and result.read_back is not None
    assert scene.proxy.swallowed == before + 1
    assert (result.copied.error, result.copied.copied, result.copied.sessions) == (None, 10 * BATCH, 1)
    found = scene.check()
    assert not (found.lost or found.reordered or found.altered or found.foreign), found
    assert bool(found.doubled) == (delivery == "leader_ack"), found
    assert len(found.doubled) == result.read_back.duplicates <= BATCH


@pytest.mark.parametrize("delivery", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.slow)])
def test_a_sequence_out_of_order_ends_the_session_and_the_ledger_says_what_is_left(
    scene: Behind, delivery: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker lost a batch that it had acknowledged. Without transactions, what it had before is there twice, and counted."""
    prepare(scene, delivery)
    job, before = scene.copy_job(), scene.proxy.lost
    scene.proxy.lose(PRODUCE, after=3)
    (result,) = submit(job)
    assert result.copied is not None and result.read_back is not None
    assert scene.proxy.lost == before + 1
    assert (result.copied.error, result.copied.copied, result.copied.sessions) == (None, 10 * BATCH, 2)
    (ended,) = told(caplog, Event.COPY_SESSION_ENDED)
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in ended.getMessage()
    assert (result.read_back.error, result.read_back.records) == (None, 10 * BATCH)
    found = scene.check()
    assert not (found.lost or found.reordered or found.altered or found.foreign), found
    assert bool(found.doubled) == (delivery == "at_least_once"), found
    assert len(found.doubled) == result.read_back.duplicates


@pytest.fixture
def after_a_chunk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Something happens when the first chunk of a copy is committed."""
    copy = Copier.copy

    def watching(act: Callable[[], None]) -> None:
        def copying(copier: Copier, task: CopyTask) -> CopyResult:
            copier.progress = lambda _, result: act() if result.chunks == 1 else None
            return copy(copier, task)

        monkeypatch.setattr(Copier, "copy", copying)

    return watching


def test_a_batch_that_expires_unsent_is_sent_by_the_next_session(
    scene: Behind,
    after_a_chunk: Callable[[Callable[[], None]], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The line is away from the first commit until the session has given up."""
    scene.client["message.timeout.ms"] = 1_000
    scene.settings["copy"] = {"chunk_records": 5 * BATCH}
    prepare(scene)
    close = TransactionalProducer.close

    def on_a_mended_line(producer: TransactionalProducer) -> None:
        scene.proxy.accept()
        close(producer)

    after_a_chunk(scene.proxy.refuse)
    monkeypatch.setattr(TransactionalProducer, "close", on_a_mended_line)
    (result,) = submit(scene.copy_job())
    assert result.copied is not None
    assert (result.copied.error, result.copied.copied, result.copied.sessions) == (None, 10 * BATCH, 2)
    (ended,) = told(caplog, Event.COPY_SESSION_ENDED)
    assert "TIMED_OUT" in ended.getMessage(), ended.getMessage()
    scene.assert_copied()
    assert len(read(scene.target.bootstrap, scene.topic, 0, committed=False)) == 10 * BATCH, "it was sent"


def test_exhausted_attempts_are_a_named_failure_in_log_and_alert(
    scene: Behind,
    after_a_chunk: Callable[[Callable[[], None]], None],
    received: Inbox,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No answer comes back: each attempt ends at the stall time, the last one ends the range."""
    prepare(scene)
    after_a_chunk(lambda: scene.proxy.swallow(PRODUCE, FOR_EVER))
    monkeypatch.setattr(deadline, "ATTEMPTS", 2)
    copying = {"chunk_records": 50, "stall_timeout": 3}
    report = scene.run(InProcess(between=scene.proxy.behave), copy=copying)
    assert report.outcome == "failed", report.table()
    error = only(report).error or ""
    assert "2 attempts in a row failed" in error
    assert "the target acknowledged nothing for 3 s" in error
    (failed,) = told(caplog, Event.COPY_FAILED)
    wanted = {"topic": scene.topic, "partition": 0, "offset": 50, "key_digest": key_digest(b"k50"), "attempts": 2}
    assert vars(failed).items() >= wanted.items()
    assert vars(failed)["error_id"] == "attempts-exhausted" and vars(failed)["seconds"] > 2
    assert failed.levelno == logging.ERROR and key_digest(b"k50") in failed.getMessage()
    assert events(watcher(scene, received).look()) == [f"opened run-failed {scene.topic}"]
    assert all("2 attempts in a row failed" in each.text for each in (*received.mails, *received.posts))
    assert scene.watermark() == 50 and scene.check(until=50).clean
