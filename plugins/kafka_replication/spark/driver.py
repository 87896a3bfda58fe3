"""Runs in the Spark driver: takes jobs from its launcher, and sends back the result of each task when it is there."""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading

import psutil
from py4j.protocol import INPUT_CONVERTER
from pyspark import SparkConf, SparkContext

from kafka_replication.spark import jvm
from kafka_replication.spark.channel import DriverSide, Gone
from kafka_replication.spark.dealer import run
from kafka_replication.spark.jobs import Answer, Job
from kafka_replication.spark.local import is_local

log = logging.getLogger(__name__)
Jobs = queue.SimpleQueue[Job | None]


def main() -> None:
    """Entry point of the script: ``SCRIPT SOCKET``. Ends when the launcher asks for it, or is gone."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    parent = jvm.watch()
    launcher, jobs = DriverSide(sys.argv[1]), Jobs()
    threading.Thread(target=_take, args=(launcher, jobs, parent), daemon=True, name="take-jobs").start()
    _convert_nothing_of_sql()
    context = SparkContext.getOrCreate(SparkConf())
    try:
        while (job := jobs.get()) is not None:
            launcher.send(Answer(end=run(context, job, lambda result: launcher.send(Answer(result=result)))))
    finally:
        if not is_local(context.master or ""):  # there the JVM, which ends now, stops it; PySpark would wait a second
            context.stop()


def _convert_nothing_of_sql() -> None:
    """Keep Spark's context from loading NumPy and pandas, 0.3 s of processor time and 85 MB: PySpark 4 asks both, where
    they are installed, whether each value for Java is one of theirs. Nothing of that kind goes to Java here.
    """
    INPUT_CONVERTER[:] = [one for one in INPUT_CONVERTER if not type(one).__module__.startswith("pyspark.sql.")]


def _take(launcher: DriverSide, jobs: Jobs, parent: psutil.Process | None) -> None:
    try:
        for job in launcher.jobs():
            jobs.put(job)
    except Gone:
        log.error("the process that submitted these jobs is gone: stopping")
        jvm.end(parent)
        os._exit(1)
    jobs.put(None)
