"""What Spark itself may do wrong, and what the person does. What goes wrong in a range is an error of that range."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One way. ``is_passing``: the same job may succeed when it is submitted again."""

    name: str  # its anchor in docs/errors.md
    what: str
    remedy: str
    is_passing: bool = True


EXECUTOR_LACKS_MODULE = Failure(
    name="executor-lacks-module",
    what="a Spark executor cannot run the job",
    remedy="install requirements.txt and the module of each transform into that Python on every executor, name another"
    " Python with PYSPARK_PYTHON (spark.pyspark.python), or send a transform's module with spark.submit.pyFiles in"
    " spark.conf",
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

ALL = (EXECUTOR_LACKS_MODULE, WORKER_ENDED, GAVE_UP, ENDED_EARLY, NOT_STARTED)
