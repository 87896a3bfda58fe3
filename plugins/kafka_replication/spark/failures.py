"""The failures of Spark itself, each with its remedy. A failure in a range is an error of that range."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One kind of failure. ``is_passing``: the same job may succeed later. ``is_start``: no job was begun."""

    name: str  # its anchor in docs/errors.md
    what: str
    remedy: str
    is_passing: bool = True
    is_start: bool = False


EXECUTOR_LACKS_MODULE = Failure(
    name="executor-lacks-module",
    what="a Spark executor cannot run the job",
    remedy="install requirements.txt (for copy.engine: batch also kafka-replication[batch] has what is needed) and the"
    " module of each transform into that Python on every executor, name another Python with PYSPARK_PYTHON"
    " (spark.pyspark.python), or send a transform's module with spark.submit.pyFiles in spark.conf",
    is_passing=False,
)
EXECUTOR_LACKS_PYTHON = Failure(
    name="executor-lacks-python",
    what="a Spark executor cannot start its Python",
    remedy="name with PYSPARK_PYTHON (spark.pyspark.python) a Python that every executor has, of the driver's version",
    is_passing=False,
)
WORKER_ENDED = Failure(
    name="worker-ended",
    what="the Spark worker of this range ended in every attempt",
    remedy="see the executor's log; a worker that was killed for memory needs more (spark.executor.memoryOverhead, or"
    " the limit of its container); then run again",
)
GAVE_UP = Failure(
    name="spark-gave-up", what="Spark gave up", remedy="see Spark's log, which has the cause; then run again"
)
ENDED_EARLY = Failure(
    name="spark-ended",
    what="Spark ended before its work was done",
    remedy="see Spark's log; run again: the next run continues after the last commit",
)
NOT_STARTED = Failure(
    name="spark-not-started",
    what="Spark did not start",
    remedy="see Spark's log: Java 17 or newer, the master of the Spark connection, its memory; then run again",
)
MASTER_SILENT = Failure(
    name="spark-master-silent",
    what="no Spark master answers",
    remedy="start it, or correct host and port of the Spark connection; then run again",
    is_start=True,
)
SECRET_REFUSED = Failure(
    name="spark-secret-refused",
    what="the Spark master does not let the application in",
    remedy="give the Spark connection the same spark.authenticate and spark.authenticate.secret that the master has",
    is_passing=False,
    is_start=True,
)
NOT_REGISTERED = Failure(
    name="spark-not-registered",
    what="something answers at the address of the Spark master, and does not take the application",
    remedy="see the master's log and Spark's: is it a Spark master, and of the same version of Spark? Then run again",
    is_start=True,
)
APPLICATION_REMOVED = Failure(
    name="spark-application-removed",
    what="the Spark master ended the application",
    remedy="if nobody ended it there, its executors could not start: see their logs; then run again",
    is_passing=False,
)
EXECUTORS_LOST = Failure(
    name="spark-executors-lost",
    what="Spark lost every executor of the application, and the master gave it no other one",
    remedy="see whether the Spark master and its workers run: a master that was restarted forgets the application; then"
    " run again: the next run continues after the last commit",
)

ALL = (
    EXECUTOR_LACKS_MODULE,
    EXECUTOR_LACKS_PYTHON,
    WORKER_ENDED,
    GAVE_UP,
    ENDED_EARLY,
    NOT_STARTED,
    MASTER_SILENT,
    SECRET_REFUSED,
    NOT_REGISTERED,
    APPLICATION_REMOVED,
    EXECUTORS_LOST,
)
