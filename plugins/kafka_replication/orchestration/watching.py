"""The watcher (`runs.watching`) inside an Airflow task: Airflow's connections, notifiers and knowledge of DAG runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.configuration import conf
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import GetPreviousDagRun, PreviousDagRunResult

from kafka_replication.alerting.telling import Links
from kafka_replication.config import Replication
from kafka_replication.orchestration.connections import AirflowConnections, store
from kafka_replication.orchestration.notifiers import channels
from kafka_replication.runs.watching import SENDING, FailedRun, Orchestrator, Watcher
from kafka_replication.web import PREFIX, ROUTE
from kafka_replication.web.actions import Site, dag_run_of, store_run_id

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)


def airflow_of(replication: Replication) -> Orchestrator:
    """The view that Airflow has of the runs of a replication. Asks through the task's supervisor."""
    name = replication.name

    def state(run_id: str) -> str | None:
        if (dag_run := dag_run_of(name, run_id)) is None:
            return None
        try:
            state = task_runner.RuntimeTaskInstance.get_dagrun_state(*dag_run)
            return str(getattr(state, "value", state))  # an enum whose text is not its value
        except Exception as problem:  # noqa: BLE001 - the DAG run was deleted, or Airflow does not answer
            log.info("Airflow does not know run %s: %s", run_id, problem)
            return None

    def newest_failed() -> FailedRun | None:
        try:
            answer = task_runner.SUPERVISOR_COMMS.send(GetPreviousDagRun(dag_id=name, logical_date=datetime.now(UTC)))
            run = answer.dag_run if isinstance(answer, PreviousDagRunResult) else None
        except Exception as problem:  # noqa: BLE001 - Airflow does not answer
            log.info("Airflow does not know the latest run of %s: %s", name, problem)
            return None
        if run is None or run.state != "failed" or run.end_date is None:
            return None
        began = run.start_date or run.run_after
        return FailedRun(run_id=store_run_id(name, run.run_id), began_at=began, ended_at=run.end_date)

    def paused() -> bool:
        try:
            return task_runner.RuntimeTaskInstance.get_dag(name).is_paused
        except Exception as problem:  # noqa: BLE001 - the DAG is not parsed yet, or Airflow does not answer
            log.info("Airflow does not know the DAG %s: %s", name, problem)
            return False

    links = Links()
    if base := conf.get("api", "base_url", fallback="").rstrip("/"):
        site = Site(f"{base}/plugin/{ROUTE}{PREFIX}", base)
        links = Links(lambda run_id: site.run(name, run_id) or site.dag(name), site.replication(name))
    return Orchestrator(state=state, paused=paused, newest_failed=newest_failed, links=links)


def watcher(replication: Replication, context: Mapping[str, Any], seconds: float = SENDING) -> Watcher:
    return Watcher(
        replication=replication,
        connections=AirflowConnections(),
        open_store=store,
        orchestrator=airflow_of(replication),
        more=channels(replication, context),
        budget=seconds,
    )


def look(replication: Replication, context: Context) -> None:
    """Look at a replication after a run of it has ended, if a cause is open."""
    with closing(store()) as opened:
        causes = opened.open_causes(replication.name)
    if causes:
        watcher(replication, dict(context)).look()
