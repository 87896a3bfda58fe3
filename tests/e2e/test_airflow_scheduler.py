"""Under a real scheduler: Airflow's own backfill of data intervals, and the scheduler itself killed in the middle of a copy."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from kafka_replication.runtime.failpoints import VARIABLE
from stack.airflow_api import AirflowApi
from stack.airflow_standalone import AirflowSettings, AirflowStandalone
from stack.errors import StackError
from stack.processes import launch
from tests.e2e.standalone import Form, standalone
from tests.support.checker import check, read
from tests.support.clusters import Brokers
from tests.support.processes import command
from tests.support.scenario import Cluster, Rec, numbered
from tests.support.timed_events import keys, produce
from tests.support.waiting import wait_until

KILLED, HOURLY, FORMS = (f"{name}-{uuid4().hex[:8]}" for name in ("af-scheduler-killed", "af-hourly", "af-forms"))
PARTITIONS, RECORDS = 2, 2_000
HOUR = timedelta(hours=1)
NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
FIRST = NOW - 3 * HOUR
# A dead task is noticed when its heartbeat is missed so long.
QUICK = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_DETECTION_INTERVAL": "3",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "60",  # the files stay as they are
    # A machine that does other work, too, imports a DAG file slowly.
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
    "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "300",
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
        "retries": {"attempts": 3},
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
        [
            killed,
            hourly,
            {"name": FORMS, "topics": {"include": [FORMS, f"^{FORMS}[.]"]}, "failures": {"policy": "quarantine"}},
        ],
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
def test_every_form_works_as_it_stands_and_emptied_and_names_a_field_that_it_refuses(
    airflow: AirflowStandalone, source_cluster: Brokers, target_cluster: Brokers
) -> None:
    source, target = Cluster(source_cluster.bootstrap), Cluster(target_cluster.bootstrap)
    source.create(FORMS)
    source.produce(FORMS, [Rec(None if place in (3, 7) else b"%d" % place, b"event") for place in range(10)])
    target.create(FORMS, 1, {"cleanup.policy": "compact"})  # refuses the two without a key
    with airflow.api() as api:
        live, backfill, audit, failed = (
            Form(api, f"{FORMS}{suffix}") for suffix in ("", ".backfill", ".audit", ".failed")
        )
        for form, name in ((live, "topics"), (audit, "partition"), (failed, "until"), (backfill, "dry_run")):
            with pytest.raises(StackError, match=f"Invalid input for param {name}: '' is not of type"):
                form.send({name: ""})

        assert live.run("report", **live.emptied([""]))["outcome"] == "done"
        assert records(failed, **failed.emptied()) == [(3, "quarantined"), (7, "quarantined")]
        refused = failed.refused("handle", **failed.emptied() | {"action": "retry", "kind": "nope", "state": "gone"})
        assert "kind: 'nope' is no kind of failure" in refused and "state: 'gone' is no state" in refused
        discarded = records(failed, action="discard", **{"from": 3, "until": 4}, reason="a test record")
        assert discarded == [(3, "discarded")]
        target.set(FORMS, **{"cleanup.policy": "delete"})
        assert records(failed, action="retry", all=True) == [(7, "retried")]
        assert audit.run("audit", **audit.emptied())["outcome"] == "clean"
        assert backfill.run("plan", **backfill.emptied())["offsets_to_copy"] == 0
        assert "from: must be an offset" in backfill.refused("plan", **{"from": ""})
    assert [record.key for _, record in read(target.bootstrap, FORMS, 0)] == [
        *(b"%d" % place for place in range(10) if place not in (3, 7)),
        None,
    ]


def records(form: Form, **changed: Any) -> list[tuple[int, str]]:
    return [(record["offset"], record["state"]) for record in form.run("handle", **changed)["records"]]


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
