"""Our copying without Spark and its start: the functions that a Spark Python worker runs, in two processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from benchmarks.clusters import Pair
from benchmarks.two_processes import two_processes
from benchmarks.usage import Usage, Used
from kafka_replication.config import Replication
from kafka_replication.copying.engine import CopyResult
from kafka_replication.runs import steps
from kafka_replication.runs.leasing import EVERYTHING, leased
from kafka_replication.runs.run import Request, open_run
from kafka_replication.spark import worker
from kafka_replication.spark.jobs import Job, JobEnd, RangeResult, RangeTask, needed
from kafka_replication.spark.launcher import Deliver, Launcher
from kafka_replication.spark.preloaded import preload
from kafka_replication.store import open_store
from kafka_replication.verification.verify import VerifyResult


class TwoWorkers(Launcher):
    """A launcher that runs ranges in two fresh processes, as ``local[2]`` would: all copies, then all reading back."""

    copying: Used
    reading_back: Used

    def __init__(self, brokers: Sequence[int]) -> None:
        self._brokers = brokers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        work = [(job, task) for task in job.tasks]
        # As PySpark's daemon prepares what it forks.
        with two_processes(*needed(job.replication.copying), prepare=preload) as (pool, pids):
            with Usage(pids, self._brokers) as usage:
                copied = pool.map(_copy, work, chunksize=1)
            self.copying = usage.used
            with Usage(pids, self._brokers) as usage:
                read_back = pool.map(_read_back, work, chunksize=1)
            self.reading_back = usage.used
        deliver(
            [
                RangeResult(key=task.key, copied=one, read_back=other)
                for task, one, other in zip(job.tasks, copied, read_back, strict=True)
            ]
        )
        return JobEnd()


def _copy(what: tuple[Job, RangeTask]) -> CopyResult:
    job, task = what
    assert task.copy is not None
    return worker.copy(worker.tools_of(job), task.copy)


def _read_back(what: tuple[Job, RangeTask]) -> VerifyResult:
    job, task = what
    return worker.read_back(worker.tools_of(job), task.read_back, job.attempts)


def ours(pair: Pair, topic: str, name: str, launcher: TwoWorkers | None = None, **settings: Any) -> TwoWorkers:
    """One run of a new replication that copies a topic to ``name.topic``, with further ``settings`` of its file."""
    replication = Replication.model_validate(
        {
            "name": name,
            "source": {"connection": "source"},
            "target": {"connection": "target"},
            "topics": {"include": [topic], "rename": f"{name}.{{topic}}"},
            "target_topics": {"replication_factor": pair.replicas},
            **settings,
        }
    )
    store = open_store(f"sqlite:///{pair.folder}/store.db")
    launcher = launcher or TwoWorkers(pair.brokers)
    with leased(open_run(replication, pair, store, name), EVERYTHING) as run:
        done = steps.replicate(run, steps.prepare(run, Request()), launcher)
    if done.not_copied or done.not_verified or not done.read_back:
        raise SystemExit(f"{name} is not verified: {done}")
    return launcher
