"""What runs inside a Spark Python worker: one range, with clients created here."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import replace

from kafka_replication.copy import Copier, CopyResult, CopyTask
from kafka_replication.errors import ReplicationError
from kafka_replication.jobs import COPY_RESULT, VERIFY_RESULT, Job
from kafka_replication.offsets import Coverage
from kafka_replication.verify import VerifyResult, VerifyTask, verify

log = logging.getLogger(__name__)


def execute(job: Job, number: int) -> str:
    """Copy or verify the job's range ``number``; the result as JSON."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    if job.kind == "copy":
        return COPY_RESULT.dump_json(copy_one(job, job.copies[number])).decode()
    return VERIFY_RESULT.dump_json(verify_one(job, job.verifications[number])).decode()


def copy_one(job: Job, task: CopyTask) -> CopyResult:
    from kafka_replication.kafka.record_engine import RecordEngine

    log.info("copying %s %s to %s", task.key.source, task.range, task.key.target_topic)
    started = time.monotonic()

    def progress(task: CopyTask, result: CopyResult) -> None:
        seconds = time.monotonic() - started
        done = 100 * result.copied / max(1, task.range.span)
        log.info("%s: %d records, %.1f MB/s, %.0f%% of span", task.key.source, result.copied, result.bytes / 1e6 / seconds, done)

    return Copier(RecordEngine(job.source, job.target, job.settings), job.settings, progress).copy(task)


def verify_one(job: Job, task: VerifyTask) -> VerifyResult:
    from kafka_replication.kafka.rereader import segment_reader

    started = time.monotonic()
    try:
        with segment_reader(job.target, task.key, job.settings.stall_timeout) as reader:
            result = verify(task, reader)
    except ReplicationError as e:
        result = VerifyResult(task.key, Coverage(), error=e.what, remedy=e.remedy)
    log.info("verified %s %s: %d records", task.key.source, result.verified, result.records)
    return replace(result, seconds=round(time.monotonic() - started, 3))
