"""The cases of `time_to_alert` under a whole Airflow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import psutil

from benchmarks.alert_bench import NAME, Bench, Times, await_, measure
from kafka_replication.config.values.names import WATCH_DAG
from stack.airflow_api import AirflowApi
from stack.airflow_standalone import AirflowStandalone
from stack.errors import StackError
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
            await_(partial(_unpaused, api, dag_id), f"{dag_id} to be unpaused")
        yield started


def _unpaused(api: AirflowApi, dag_id: str) -> bool:
    """Airflow's SQLite may be locked on a busy machine."""
    with suppress(StackError):
        api.unpause(dag_id)
        return True
    return False


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
    "airflow-scheduler-stopped": scheduler_stopped,
}
