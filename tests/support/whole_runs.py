"""Whole runs and backfills of one process, each with a run id and a time budget of its own."""

from __future__ import annotations

from kafka_replication.config import Replication
from kafka_replication.connections import Connections
from kafka_replication.planning.backfill_request import BackfillRequest
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import backfill as backfilling
from kafka_replication.runs import runner
from kafka_replication.runs.run import Request, Run, open_run
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.spark.launcher import Launcher
from kafka_replication.store.watermark_store import WatermarkStore


def run(
    replication: Replication, connections: Connections, store: WatermarkStore, launcher: Launcher, request: Request
) -> RunReport:
    return runner.execute(_opened(replication, connections, store), launcher, request)


def backfill(
    replication: Replication,
    connections: Connections,
    store: WatermarkStore,
    launcher: Launcher,
    request: BackfillRequest,
) -> RunReport:
    return backfilling.execute(_opened(replication, connections, store), launcher, request)


def _opened(replication: Replication, connections: Connections, store: WatermarkStore) -> Run:
    return open_run(replication, connections, store, runner.new_run_id(), Deadline.after(replication.timeouts.run))
