"""One whole run in one process, under a lease of its target topics. A DAG runs the same steps in several tasks."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from datetime import UTC, datetime

from kafka_replication.planning.plan import Plan
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import steps
from kafka_replication.runs.leasing import leased, live_scope, topics_of
from kafka_replication.runs.run import LeasedRun, Request, Run
from kafka_replication.spark.launcher import Launcher
from kafka_replication.watermarks.rules import check_interval

log = logging.getLogger(__name__)


def new_run_id() -> str:
    """A new run id, as it appears in leases, receipts and reports."""
    return f"cli-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def execute(run: Run, launcher: Launcher, request: Request) -> RunReport:
    """All steps of one run, under a lease of its target topics.

    An idle run gives ``launcher`` no job, so Spark does not start. Raises BadInput for ``progress: interval``.
    """
    if run.replication.progress == "interval":
        check_interval(run.replication.name, None, None, datetime.now(UTC))
    with leased(run, live_scope(run, request.topics), "run") as leased_run:
        return carry_out(leased_run, steps.prepare(leased_run, request), launcher)


def carry_out(run: LeasedRun, plan: Plan, launcher: Launcher) -> RunReport:
    """Replicate the plan and report it. A plan without work gives ``launcher`` no job.

    From now on the run keeps only the target topics on which it has work.
    """
    run.hold.narrow(topics_of(plan))
    with launcher as spark:
        done = steps.replicate(run, plan, spark)
    report = steps.report(run, plan, done.not_done)
    if run.replication.groups.include:
        from kafka_replication.runs import groups  # only who moves some loads it

        groups.follow(run)
    return report
