"""Runs in the Spark driver: reads the job, runs its ranges on the executors, and writes one result per range."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext

from kafka_replication.spark import submitter
from kafka_replication.spark.jobs import JOB, RESULT, write_private
from kafka_replication.spark.stages import run

log = logging.getLogger(__name__)


def main(kind: str | None = None) -> None:
    """Entry point of the scripts: ``SCRIPT JOB_FILE RESULT_FILE``. ``kind`` is the only kind of job that the script
    runs; None means both.

    The driver removes the job file as soon as it has read it, because it holds the client settings.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    submitter.watch()
    file, result = map(Path, sys.argv[1:3])
    job = JOB.validate_json(file.read_bytes())
    file.unlink()
    if kind not in (None, job.kind):
        sys.exit(f"{file} is a {job.kind} job, not a {kind} job")
    context = SparkContext.getOrCreate(SparkConf().setAppName(f"kafka-replication {job.kind} {job.replication}"))
    try:
        done = run(context, job)
    finally:
        context.stop()
    write_private(result, RESULT.dump_json(done))
