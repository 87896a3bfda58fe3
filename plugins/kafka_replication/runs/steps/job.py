"""The Spark job of a run."""

from __future__ import annotations

from typing import Any, Literal

from kafka_replication.runs.run import LeasedRun
from kafka_replication.spark.jobs import Job


def job_of(run: LeasedRun, kind: Literal["copy", "verify"], **tasks: Any) -> Job:
    """A job with these tasks. Its time limit is what is left of the run's."""
    settings = run.replication
    return Job(
        kind=kind,
        replication=settings.name,
        run_id=run.run_id,
        source=run.clusters.source,
        target=run.clusters.target,
        settings=settings.copying,
        parallelism=settings.spark.parallelism,
        seconds=run.deadline.seconds,
        request_seconds=settings.timeouts.request,
        **tasks,
    )
