"""What runs inside a Spark Python worker: one range, with clients created here."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import replace

from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.copying.protocol import Copier
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import Coverage
from kafka_replication.runtime import stopping
from kafka_replication.runtime.deadline import Deadline, backoff
from kafka_replication.runtime.events import Event, log_event
from kafka_replication.spark.jobs import COPY_RESULT, VERIFY_RESULT, Job
from kafka_replication.verification.verify import VerifyResult, VerifyTask, verify

log = logging.getLogger(__name__)


def execute(job: Job, number: int) -> str:
    """Copy or verify the job's range ``number``; the result as JSON.

    A worker that is asked to end aborts its transaction first.
    """
    stopping.on_signals(even_ignored=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    if job.kind == "copy":
        return COPY_RESULT.dump_json(copy_one(job, job.copies[number])).decode()
    return VERIFY_RESULT.dump_json(verify_one(job, job.verifications[number])).decode()


def copy_one(job: Job, task: CopyTask) -> CopyResult:
    from kafka_replication.kafka.engines import engine_for
    from kafka_replication.kafka.sink import KafkaSink

    key = task.key
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
    sink = KafkaSink(job.target, job.settings, deadline)
    engine = engine_for(task, job.settings, job.source, sink)
    return Copier(engine=engine, sink=sink, settings=job.settings, progress=progress, deadline=deadline).copy(task)


def verify_one(job: Job, task: VerifyTask) -> VerifyResult:
    """Reads on after an error that may pass by itself, from the first chunk not verified yet."""
    started, deadline = time.monotonic(), Deadline.after(job.seconds)
    failures, result = 0, VerifyResult(key=task.key, verified=Coverage())
    while True:
        left = tuple(each for each in task.receipts if result.verified.missing_from(each.range))
        found = _verify(job, replace(task, receipts=left))
        failures = 1 if found.records else failures + 1
        result = replace(
            found,
            verified=result.verified.union(found.verified),
            records=result.records + found.records,
            bytes=result.bytes + found.bytes,
        )
        if not result.retriable or failures >= job.settings.attempts:
            break
        if deadline.left <= backoff(failures):
            over = deadline.over(f"verifying {task.key.source}")
            result = replace(
                result, error=f"{over.what}; the last error was: {result.error}", remedy=over.remedy, retriable=False
            )
            break
        log.warning("%s: reading back failed (%s); trying again", task.key.source, result.error)
        time.sleep(backoff(failures))
    log.info("verified %s %s: %d records", task.key.source, result.verified, result.records)
    return replace(result, seconds=round(time.monotonic() - started, 3))


def _verify(job: Job, task: VerifyTask) -> VerifyResult:
    from kafka_replication.kafka.segment_reader import segment_reader

    try:
        with segment_reader(job.target, task.key, job.settings.stall_timeout) as reader:
            return verify(task, reader)
    except ReplicationError as e:
        return VerifyResult(key=task.key, verified=Coverage(), error=e.what, remedy=e.remedy, retriable=e.retriable)
