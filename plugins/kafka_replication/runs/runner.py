"""One whole run, under the replication's lease: what the command line does, and what the DAG spreads over tasks."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime

from kafka_replication.config import Replication
from kafka_replication.connections.environment import Connections
from kafka_replication.reporting.report import RunReport
from kafka_replication.runs import steps
from kafka_replication.runs.run import Request, Run
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.spark.jobs import Launcher
from kafka_replication.watermarks.boundaries import check_interval
from kafka_replication.watermarks.lease import HeldLease, wait_for_lease
from kafka_replication.watermarks.store import WatermarkStore

log = logging.getLogger(__name__)


def new_run_id() -> str:
    """Names this run wherever it is named: in leases, receipts and reports."""
    return f"cli-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def held(replication: Replication, store: WatermarkStore, owner: str, *, release: bool) -> HeldLease:
    """Wait for the lease, bounded by ``lease.wait``. Raises Busy naming the holder."""
    lease = wait_for_lease(store, replication.name, owner, replication.lease.duration, replication.lease.wait)
    return HeldLease(store, lease, replication.lease.duration, release=release)


def run(
    replication: Replication,
    connections: Connections,
    store: WatermarkStore,
    launcher: Callable[[], Launcher],
    request: Request,
) -> RunReport:
    """All steps of one run. An idle run never asks for a launcher, so no Spark starts. Raises BadInput for ``progress:
    interval``.
    """
    if replication.progress == "interval":
        check_interval(replication.name, None, None, datetime.now(UTC))
    run_id, deadline = new_run_id(), Deadline.after(replication.timeouts.run)
    with ExitStack() as stack:
        lease = stack.enter_context(held(replication, store, run_id, release=True))
        this = Run(replication, connections, store, run_id, lease.check, deadline)
        plan = steps.prepare(this, request)
        keys = [p.key for p in plan.partitions if not p.refused]
        verified = []
        if not plan.idle:
            launch = launcher()
            steps.copy(this, plan, launch)
            verified = steps.verify(this, keys, launch)
        steps.advance(this, keys)
        return steps.report(this, plan, verified)
