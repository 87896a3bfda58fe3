"""Runs in the driver: finds out if Spark's application can still end its jobs."""

from __future__ import annotations

import time

from pyspark import SparkContext

from kafka_replication.spark.failures import ENDED_EARLY, EXECUTORS_LOST, MASTER_SILENT
from kafka_replication.spark.host import reach
from kafka_replication.spark.jobs import JobEnd

WITHOUT_EXECUTOR = 30.0  # seconds; a worker of Spark starts another executor within a few


class Application:
    """The application during one job. If Spark stops while jobs run, they never get an answer. It waits for ever for a
    standalone master that is gone or has forgotten the application.

    An application that has had no executor yet waits for its turn on a busy cluster. This is no fault.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context, self._is_standalone = context, reach.is_standalone(context.master or "")
        self._had_one = False
        self._without_since = time.monotonic()

    def end(self) -> JobEnd | None:
        """The end of the application; None while it goes on."""
        scala = self._context._jsc.sc()
        if scala.isStopped():
            return JobEnd.of(ENDED_EARLY)
        if not self._is_standalone:
            return None
        if scala.getExecutorMemoryStatus().size() > 1:  # the driver counts as one
            self._had_one, self._without_since = True, time.monotonic()
        if time.monotonic() - self._without_since < WITHOUT_EXECUTOR:
            return None
        if silent := reach.silent(self._context.master or ""):
            return JobEnd.of(MASTER_SILENT, silent)
        return JobEnd.of(EXECUTORS_LOST) if self._had_one else None
