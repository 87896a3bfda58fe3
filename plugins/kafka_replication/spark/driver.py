"""What runs in the Spark driver: deal the ranges to tasks, collect one result a range."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kafka_replication.spark.jobs import COPY_RESULT, JOB, RESULT, VERIFY_RESULT, Job, JobResult, deal, write_private

log = logging.getLogger(__name__)
PARENT = "KAFKA_REPLICATION_PARENT"
NEEDED = (
    "pyarrow",
    "confluent_kafka",
    "xxhash",
    "pydantic",
    "tenacity",
    "kafka_replication.kafka.engines.record.engine",
)
MISSING = "missing"


def main(kind: str) -> None:
    """Entry point of the scripts in ``spark_jobs/``: ``SCRIPT JOB_FILE RESULT_FILE``."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    watch_parent()
    job = JOB.validate_json(Path(sys.argv[1]).read_bytes())
    if job.kind != kind:
        sys.exit(f"{sys.argv[1]} is a {job.kind} job, not a {kind} job")
    spark = SparkSession.builder.appName(f"kafka-replication {kind} {job.replication}").getOrCreate()
    try:
        result = run(spark, job)
    finally:
        spark.stop()
    write_private(Path(sys.argv[2]), RESULT.dump_json(result))


def run(spark: SparkSession, job: Job) -> JobResult:
    """Run every range of the job; a failing range is a result like any other."""
    hands = deal(range(len(job.copies or job.verifications)), job.parallelism)
    try:
        rows = (
            spark.range(0, len(hands), 1, len(hands))
            .mapInArrow(_task(JOB.dump_json(job), hands), "result string")
            .collect()
        )
    except Exception as e:  # a task that died more often than Spark tries it
        log.exception("Spark gave up")
        if _NO_PYARROW.search(str(e)):  # Spark itself needs it, before it calls us
            return _missing(spark.sparkContext.pythonExec, "cannot import pyarrow")
        return JobResult(error=f"Spark gave up on a task: {_cause(str(e))[:500]}")
    results = [row["result"] for row in rows]
    for lack in (json.loads(each)[MISSING] for each in results if each.startswith(f'{{"{MISSING}"')):
        return _missing(*lack)
    if job.kind == "copy":
        return JobResult(copies=[COPY_RESULT.validate_json(each) for each in results])
    return JobResult(verifications=[VERIFY_RESULT.validate_json(each) for each in results])


_NO_PYARROW = re.compile(r"No module named 'pyarrow|PyArrow .*must be installed")
_ERROR = re.compile(r"^(?:: )?([\w.]+(?:Error|Exception|Exit)\b.*)$", re.MULTILINE)


def _cause(text: str) -> str:
    """The line that says why, of a long trace through two languages: the last one that names an error."""
    return (_ERROR.findall(text) or text.strip().splitlines())[-1]


def _missing(where: str, what: str) -> JobResult:
    return JobResult(
        error=f"a Spark executor cannot run the job: {where} {what}",
        remedy=(
            "install requirements.txt into that Python on every executor, or name another with PYSPARK_PYTHON"
            " (spark.pyspark.python)"
        ),
        retriable=False,
    )


def _task(job: bytes, hands: list[list[int]]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What an executor runs.

    It needs nothing of ours until it has looked for it, so that what is missing there can be named.
    """
    needed, missing = NEEDED, MISSING

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        import importlib
        import json
        import socket
        import sys

        def line(text: str) -> Any:
            pa = importlib.import_module("pyarrow")
            return pa.RecordBatch.from_arrays(
                [pa.array([text], pa.string())], schema=pa.schema([pa.field("result", pa.string())])
            )

        for batch in batches:
            try:
                for name in needed:
                    importlib.import_module(name)
            except ImportError as e:
                yield line(
                    json.dumps(
                        {
                            missing: [
                                f"{sys.executable} on {socket.gethostname()}",
                                f"cannot import {e.name or ''} ({e})",
                            ]
                        }
                    )
                )
                return
            from kafka_replication.spark.jobs import JOB
            from kafka_replication.spark.worker import execute

            work = JOB.validate_json(job)
            for hand in batch.column(0).to_pylist():
                for number in hands[hand]:
                    yield line(execute(work, number))

    return task


def watch_parent() -> None:
    """End Spark when the process that submitted it is gone: killing that process alone leaves Spark running."""
    parent = os.environ.get(PARENT)
    if parent:
        threading.Thread(target=_watch, args=(int(parent),), daemon=True, name="watch-parent").start()


def _watch(parent: int) -> None:
    while _alive(parent):
        time.sleep(0.5)
    log.error("the process that submitted this job (pid %d) is gone: stopping", parent)
    os.kill(os.getppid(), signal.SIGTERM)  # the driver's JVM, which ends its Python workers
    os._exit(1)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
    except OSError:
        return True
