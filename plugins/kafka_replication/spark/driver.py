"""Runs in the Spark driver: takes jobs from its launcher, and sends back the result of each task when it is there.

When the JVM that started it is gone, the driver has nothing left to do.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import threading
import time

import psutil
from py4j.protocol import INPUT_CONVERTER
from pyspark import SparkConf, SparkContext

from kafka_replication.runtime.identity import is_running
from kafka_replication.spark.channel import DriverSide, Gone
from kafka_replication.spark.dealer import run
from kafka_replication.spark.jobs import Answer, Job
from kafka_replication.spark.local import is_local

log = logging.getLogger(__name__)
Jobs = queue.SimpleQueue[Job | None]
INTERVAL = 0.5  # seconds between two looks at whether the JVM still runs
GRACE = 20.0  # seconds


def main() -> None:
    """Entry point of the script: ``SCRIPT SOCKET``. Ends when the launcher asks for it, or is gone."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    jvm = watch_jvm()
    launcher, jobs = DriverSide(sys.argv[1]), Jobs()
    threading.Thread(target=_take, args=(launcher, jobs, jvm), daemon=True, name="take-jobs").start()
    # Keep Spark's context from loading NumPy and pandas, 0.3 s of processor time and 85 MB: PySpark 4 asks both, where
    # they are installed, whether each value for Java is one of theirs. Nothing of that kind goes to Java here.
    INPUT_CONVERTER[:] = [each for each in INPUT_CONVERTER if not type(each).__module__.startswith("pyspark.sql.")]
    context = SparkContext.getOrCreate(SparkConf())
    try:
        while (job := jobs.get()) is not None:
            launcher.send(Answer(end=run(context, job, lambda result: launcher.send(Answer(result=result)))))
    finally:
        if not is_local(context.master or ""):  # there the JVM, which ends now, stops it; PySpark would wait a second
            context.stop()


def _take(launcher: DriverSide, jobs: Jobs, jvm: psutil.Process | None) -> None:
    try:
        for job in launcher.jobs():
            jobs.put(job)
    except Gone:
        log.error("the process that submitted these jobs is gone: stopping")
        end_jvm(jvm)
        os._exit(1)
    jobs.put(None)


def watch_jvm() -> psutil.Process | None:
    """End this process when its JVM is gone. Returns the JVM, or None if it is gone already.

    The JVM is the driver's parent at this moment, so it is remembered now. If the JVM dies, another process becomes the
    driver's parent, in a container often process 1, and that one must not be ended.
    """
    jvm = None
    with contextlib.suppress(psutil.NoSuchProcess):
        jvm = psutil.Process(pid) if (pid := os.getppid()) > 1 else None

    def end_with_it() -> None:
        while jvm is not None and is_running(jvm):
            time.sleep(INTERVAL)
        log.error("the JVM of this driver is gone: stopping")
        os._exit(1)

    threading.Thread(target=end_with_it, daemon=True, name="watch-jvm").start()
    return jvm


def end_jvm(jvm: psutil.Process | None) -> None:
    """Ask the JVM to end, which ends its Python workers. If it has not ended after `GRACE`, kill it: its workers see
    that, too. psutil signals no other process that got the same pid.
    """
    with contextlib.suppress(psutil.Error):
        if jvm is not None and is_running(jvm):
            jvm.terminate()
            with contextlib.suppress(psutil.TimeoutExpired):
                jvm.wait(GRACE)
                return
            jvm.kill()
