"""The cases of `time_to_alert` under a whole Airflow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import psutil

from benchmarks.alert_bench import NAME, Bench, Times, await_, measure
from kafka_replication.config.expression import parse_time
from kafka_replication.config.names import WATCH_DAG
from stack.airflow_api import FINISHED, AirflowApi
from stack.airflow_standalone import AirflowStandalone
from tests.e2e.standalone import standalone
from tests.support.clusters import Brokers

LONGEST = 900.0  # seconds of a run


@contextmanager
def airflow(bench: Bench) -> Iterator[AirflowStandalone]:
    """Airflow with the replication, whose DAGs are parsed and not paused."""
    ours = {name: value for name, value in bench.environment.items() if os.environ.get(name) != value}
    sides = Brokers(bench.source.bootstrap), Brokers(bench.target.bootstrap)
    with standalone(bench.folder, *sides, [bench.document()], ours) as started, started.api() as api:
        for dag_id in (NAME, WATCH_DAG):
            api.wait_for_dag(dag_id)
            api.unpause(dag_id)
        yield started


def marked_failed(bench: Bench) -> Times:
    """In the middle of its copy, as in Airflow's UI. The DAG that watches notices."""
    with airflow(bench) as started, started.api() as api:

        def fault() -> float:
            run_id = api.trigger(NAME)
            await_(lambda: bench.copied() > 0, "a first chunk")
            api.set_run_state(NAME, run_id, "failed")
            return time.monotonic()

        def mend() -> float:
            api.wait_for_run(NAME, api.trigger(NAME), LONGEST)
            return time.monotonic()

        return measure(bench, fault, mend, watched_by_airflow=True)


def source_dead(bench: Bench) -> Times:
    """Before a run plans; from the first error in its log. The DAG that watches looks after the alert, too."""
    bench.settings["retries"] = {"attempts": 0}
    with airflow(bench) as started, started.api() as api:
        return source_dies_once(bench, api)


def source_dies_once(bench: Bench, api: AirflowApi) -> Times:
    def fault() -> float:
        bench.source.broker(0).kill()
        run_id = _run(api, NAME)
        lines = api.logs(NAME, run_id, "plan").splitlines()
        failed = next(line.split()[0] for line in lines if " ERROR " in line)
        return time.monotonic() - (datetime.now(UTC) - parse_time(failed)).total_seconds()

    def mend() -> float:
        _run(api, WATCH_DAG)
        bench.source.start()
        _run(api, NAME)
        return time.monotonic()

    return replace(measure(bench, fault, mend, watched_by_airflow=True), within=60.0)


def _run(api: AirflowApi, dag_id: str) -> str:
    """Trigger a run and wait for its end."""
    run_id = api.trigger(dag_id)
    await_(lambda: api.run_state(dag_id, run_id) in FINISHED, f"the end of {run_id}")
    return run_id


def scheduler_stopped(bench: Bench) -> Times:
    """The scheduler stands still; a run is due each minute. `kafka-replication watch` notices."""
    bench.settings["schedule"] = "* * * * *"
    with airflow(bench) as started:

        def fault() -> float:
            await_(lambda: bench.ended() >= 2, "two runs of the schedule")
            scheduler.suspend()
            return time.monotonic()

        def mend() -> float:
            scheduler.resume()
            return time.monotonic()

        assert started.process is not None
        children = psutil.Process(started.process.pid).children()
        [scheduler] = [child for child in children if " scheduler" in " ".join(child.cmdline())]
        try:
            return measure(bench, fault, mend)
        finally:
            scheduler.resume()


CASES: dict[str, Callable[[Bench], Times]] = {
    "airflow-run-marked-failed": marked_failed,
    "airflow-source-dead": source_dead,
    "airflow-scheduler-stopped": scheduler_stopped,
}
