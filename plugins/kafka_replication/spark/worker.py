"""Runs inside a Spark Python worker: copies or verifies one range, with clients created here.

Each worker process imports this module, so it imports nothing that only the driver or the command line needs.
"""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import replace
from functools import lru_cache

from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.copying.protocol import Copier
from kafka_replication.model.errors import ReplicationError, Unreachable
from kafka_replication.model.offsets import Coverage
from kafka_replication.runtime import failpoints, stopping
from kafka_replication.runtime.deadline import Deadline, retry
from kafka_replication.runtime.events import Event, log_event
from kafka_replication.spark.jobs import JOB, TASK, Job, encode
from kafka_replication.verification.verify import VerifyResult, VerifyTask, verify

log = logging.getLogger(__name__)


def execute(common: bytes, row: bytes) -> str:
    """Copy or verify one range. ``common`` is a `Job` without tasks and ``row`` is one task, both JSON like the result.

    A worker that gets a signal to end aborts its transaction first.
    """
    stopping.on_signals(even_ignored=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    job = _job(common)
    task = TASK[job.kind].validate_json(row)
    return encode(copy_one(job, task) if job.kind == "copy" else verify_one(job, task))


@lru_cache(maxsize=1)
def _job(common: bytes) -> Job:
    return JOB.validate_json(common)


def copy_one(job: Job, task: CopyTask) -> CopyResult:
    from kafka_replication.kafka import reach
    from kafka_replication.kafka.engines import engine_for
    from kafka_replication.kafka.sink import KafkaSink

    key = task.key
    failpoints.reached("W", str(key.source))
    log_event(log, logging.INFO, Event.COPY_STARTED, "copying %s %s to %s", key.source, task.range, key.target_topic)
    started = time.monotonic()

    def progress(task: CopyTask, result: CopyResult) -> None:
        seconds = time.monotonic() - started
        done = 100 * result.copied / max(1, task.range.span)
        log_event(
            log,
            logging.INFO,
            Event.CHUNK_COMMITTED,
            "%s: %d records, %.1f MB/s, %.0f%% of span",
            task.key.source,
            result.copied,
            result.bytes / 1e6 / seconds,
            done,
        )

    deadline = Deadline.after(job.seconds)
    try:
        reach.check("source", job.source, task.key.source, job.request_seconds, deadline)
        reach.check("target", job.target, task.key.target, job.request_seconds, deadline)
        sink = KafkaSink(job.target, job.settings, deadline)
        engine = engine_for(task, job.settings, job.source, sink)
    except ReplicationError as e:
        return CopyResult(key=task.key, range=task.range, error=e.what, remedy=e.remedy, retriable=e.retriable)
    return Copier(engine=engine, sink=sink, settings=job.settings, progress=progress, deadline=deadline).copy(task)


def verify_one(job: Job, task: VerifyTask) -> VerifyResult:
    """Read a range back. After a retriable error, continue with the chunks that are not verified yet."""
    from kafka_replication.kafka import reach

    failpoints.reached("W", str(task.key.source))
    started, reading = time.monotonic(), _Reading(job, task)
    doing, attempts = f"verifying {task.key.source}", job.settings.attempts
    try:
        reach.check("target", job.target, task.key.target, job.request_seconds, reading.deadline)
        retry(doing, reading.go_on, reading.deadline, attempts, progress=lambda: reading.result.verified)
        result = reading.result
    except ReplicationError as e:
        result = replace(reading.result, error=e.what, remedy=e.remedy, retriable=e.retriable)
    log.info("verified %s %s: %d records", task.key.source, result.verified, result.records)
    return replace(result, seconds=round(time.monotonic() - started, 3))


class _Reading:
    """The chunks of a task that all attempts together have verified."""

    def __init__(self, job: Job, task: VerifyTask) -> None:
        self.deadline, self.result = Deadline.after(job.seconds), VerifyResult(key=task.key, verified=Coverage())
        self._job, self._task = job, task

    def go_on(self) -> None:
        """Read the chunks that are not verified yet. Raises Unreachable for an error that another attempt may heal."""
        left = tuple(receipt for receipt in self._task.receipts if self.result.verified.missing_from(receipt.range))
        read = self._read(replace(self._task, receipts=left))
        self.result = replace(
            read,
            verified=self.result.verified.union(read.verified),
            records=self.result.records + read.records,
            bytes=self.result.bytes + read.bytes,
        )
        if read.error and read.retriable:
            raise Unreachable(read.error, read.remedy)

    def _read(self, task: VerifyTask) -> VerifyResult:
        from kafka_replication.kafka.sink import KafkaSink

        try:
            with KafkaSink(self._job.target, self._job.settings, self.deadline).verifier(task.key) as reader:
                return verify(task, reader)
        except ReplicationError as e:
            return VerifyResult(key=task.key, verified=Coverage(), error=e.what, remedy=e.remedy, retriable=e.retriable)
