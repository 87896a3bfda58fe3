"""Under a real scheduler: Airflow's own backfill of data intervals, and the scheduler itself killed in the middle of a copy."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from kafka_replication.runtime.failpoints import VARIABLE
from stack.airflow_api import AirflowApi
from stack.airflow_standalone import AirflowSettings, AirflowStandalone
from stack.processes import launch
from tests.e2e.standalone import standalone
from tests.support.airflow_page import sends
from tests.support.checker import check
from tests.support.clusters import Brokers
from tests.support.processes import command
from tests.support.scenario import Cluster, numbered
from tests.support.timed_events import keys, produce
from tests.support.waiting import wait_until

KILLED, HOURLY, FORMS = "af-scheduler-killed", "af-hourly", "af-forms"
PARTITIONS, RECORDS = 2, 2_000
HOUR = timedelta(hours=1)
NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
FIRST = NOW - 3 * HOUR
# A dead task is noticed when its heartbeat is missed so long.
QUICK = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_DETECTION_INTERVAL": "3",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
}


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While it exists, workers that copy halt inside their third chunk."""
    return tmp_path_factory.mktemp("gate") / "gate"


@pytest.fixture(scope="module")
def airflow(
    tmp_path_factory: pytest.TempPathFactory, gate: Path, source_cluster: Brokers, target_cluster: Brokers
) -> Iterator[AirflowStandalone]:
    killed = {
        "name": KILLED,
        "topics": {"include": [KILLED]},
        "copy": {"chunk_records": 100},
        "retries": {"attempts": 3, "delay": 1},
    }
    hourly = {
        "name": HOURLY,
        "topics": {"include": [HOURLY]},
        "progress": "interval",
        "schedule": "@hourly",
        "start_from": FIRST.isoformat(),
        "retries": {"attempts": 0},
    }
    with standalone(
        tmp_path_factory.mktemp("scheduler"),
        source_cluster,
        target_cluster,
        [killed, hourly, {"name": FORMS, "topics": {"include": [FORMS, "^af-forms[.]"]}}],
        {**QUICK, VARIABLE: f"P1:3={gate}"},
    ) as started:
        yield started


@pytest.mark.slow
def test_airflows_own_backfill_runs_intervals_that_are_copied_once(
    airflow: AirflowStandalone, source_cluster: Brokers, target_cluster: Brokers
) -> None:
    produce(source_cluster, HOURLY, [FIRST + HOUR / 4 * number for number in range(12)])
    with airflow.api() as api:
        api.wait_for_dag(HOURLY)
        api.unpause(HOURLY)
        wait_until(lambda: states(api, "scheduled") == ["success"] * 3, 600)
        assert keys(target_cluster, HOURLY) == list(range(12))

        assert isinstance(airflow.settings, AirflowSettings)
        dates = [
            "--from-date",
            FIRST.isoformat(),
            "--to-date",
            (FIRST + HOUR).isoformat(),
            "--reprocess-behavior",
            "completed",
        ]
        asked = subprocess.run(
            [str(airflow.home / "bin" / "airflow"), "backfill", "create", "--dag-id", HOURLY, *dates],
            env=airflow.environment(airflow.settings),
            capture_output=True,
            text=True,
            check=False,
        )
        assert asked.returncode == 0, asked.stderr[-2000:]
        wait_until(lambda: len(found := states(api, "backfill")) == 2 and set(found) == {"success"}, 600)
    assert keys(target_cluster, HOURLY) == list(range(12)), "what is on the target is not copied again"


def states(api: AirflowApi, kind: str) -> list[str]:
    return [
        each["state"] for each in api.get(f"dags/{HOURLY}/dagRuns", limit=100)["dag_runs"] if each["run_type"] == kind
    ]


@pytest.mark.slow
def test_every_form_that_is_sent_as_it_stands_starts_a_run(
    airflow: AirflowStandalone, source_cluster: Brokers, target_cluster: Brokers
) -> None:
    produce(source_cluster, FORMS, [NOW] * 30)
    with airflow.api() as api:
        for suffix in ("", ".backfill", ".audit"):  # an audit needs something that was copied
            dag_id = f"{FORMS}{suffix}"
            api.wait_for_dag(dag_id)
            api.unpause(dag_id)
            form = api.get(f"dags/{dag_id}/details")["params"]
            assert form and all(sends(field["schema"], field["value"]) for field in form.values()), form
            run_id = api.trigger(dag_id, {name: field["value"] for name, field in form.items()})
            assert api.wait_for_run(dag_id, run_id, 600) == "success"
    assert keys(target_cluster, FORMS) == list(range(30))


@pytest.mark.slow
def test_a_killed_scheduler_that_is_started_again_ends_the_run_exactly(
    airflow: AirflowStandalone, gate: Path, source_cluster: Brokers, target_cluster: Brokers
) -> None:
    source, target = Cluster(source_cluster.bootstrap), Cluster(target_cluster.bootstrap)
    source.create(KILLED, PARTITIONS)
    for partition in range(PARTITIONS):
        source.produce(KILLED, numbered(RECORDS), partition)
    assert airflow.process is not None and isinstance(airflow.settings, AirflowSettings)
    gate.touch()
    with airflow.api() as api:
        api.wait_for_dag(KILLED)
        api.unpause(KILLED)
        run_id = api.trigger(KILLED)
        wait_until(lambda: target.size(KILLED) > 200)
        [scheduler] = [each for each in psutil.Process(airflow.process.pid).children() if " scheduler" in command(each)]
        scheduler.kill()
        assert target.size(KILLED) < PARTITIONS * RECORDS
        gate.unlink()
        again = launch(
            [str(airflow.home / "bin" / "airflow"), "scheduler"],
            airflow.home / "scheduler.log",
            airflow.home / "scheduler.pid",
            env=airflow.environment(airflow.settings),
            cwd=airflow.home,
        )
        try:
            assert api.wait_for_run(KILLED, run_id, 600) == "success"
        finally:
            again.send(signal.SIGTERM)
            again.wait(30)
            again.send_group(signal.SIGKILL)
        report = api.xcom(KILLED, run_id, "report")
    assert [each["watermark"] for each in report["ranges"]] == [RECORDS] * PARTITIONS
    for partition in range(PARTITIONS):
        assert check(source.bootstrap, target.bootstrap, KILLED, KILLED, partition).clean
