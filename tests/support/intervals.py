"""Data intervals of one minute each, as the DAG runs of a replication with ``progress: interval`` copy them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import runner
from kafka_replication.runs.backfill import prepare_interval
from kafka_replication.runs.leasing import interval_scope, leased
from kafka_replication.runs.run import open_run
from kafka_replication.spark.launcher import Launcher
from tests.support.jobs import InProcess
from tests.support.scenario import Rec, Scenario

SIX = datetime(2023, 11, 14, 6, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SETTINGS: dict[str, Any] = {"progress": "interval", "schedule": "* * * * *", "start_from": SIX.isoformat()}


def at(minute: float, number: int = 0) -> Rec:
    return Rec(b"%d" % number, b"%.3f" % minute, (), int((SIX + minute * MINUTE).timestamp() * 1000))


def interval(scene: Scenario, minute: int, launcher: Launcher | None = None) -> RunReport:
    """What the DAG run of one minute does; called again, what clearing it does."""
    run_id = f"scheduled-{minute}"
    replication = scene.replication(**SETTINGS)
    bare = open_run(replication, scene.connections, scene.store, run_id)
    with leased(bare, interval_scope(bare)) as run:
        made = prepare_interval(run, SIX + minute * MINUTE, SIX + (minute + 1) * MINUTE)
        return runner.carry_out(run, made, launcher or InProcess())


def copied(report: RunReport) -> int:
    assert report.outcome != "failed", report.table()
    return sum(line.copied for line in report.ranges)
