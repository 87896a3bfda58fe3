"""What tasks tell Airflow's own Stats, on real clusters, as a StatsD server hears it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

from kafka_replication.orchestration.airflow import WatchOperator
from tests.dags.test_report_task import Run
from tests.support.jobs import InProcess
from tests.support.scenario import Scenario, numbered
from tests.support.scenes import clusters, scene
from tests.support.statsd import StatsD

pytest.importorskip("statsd", reason="Airflow sends to StatsD by the package statsd, which is not installed")
__all__ = ["clusters", "scene"]
RECORDS = 20


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsD]:
    heard = StatsD()
    for name, value in heard.environment.items():
        monkeypatch.setenv(name, value)
    stats.Stats.initialize(factory=get_stats_factory(), export_legacy_names=True)
    yield heard
    stats.Stats.initialize(factory=stats_of_nobody, export_legacy_names=True)
    heard.close()


def stats_of_nobody() -> Any:
    from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger

    return NoStatsLogger()


def test_the_tasks_of_a_run_send_what_was_copied(
    scene: Scenario, server: StatsD, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(RECORDS))
    scene.source.produce(scene.topic, numbered(RECORDS), 1)
    name = scene.replication().name.replace(".", "__")
    run = Run(scene, monkeypatch, InProcess())
    run.execute("plan")
    assert server.heard() == []
    run.execute("replicate")
    (records, copied), (size, _) = server.heard()
    assert (records, copied, size) == (f"{name}.records", f"{2 * RECORDS}|c", f"{name}.bytes")
    run.execute("replicate")  # a second try has nothing left to copy
    assert server.heard() == []
    run.execute("report")
    assert server.heard() == [(f"{name}.runs.done", "1|c"), (f"{name}.ranges.verified", "2|c")]


def test_a_run_that_fails_is_counted_with_its_ranges_and_has_tags_where_statsd_knows_them(
    scene: Scenario, server: StatsD, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED", "True")
    stats.Stats.initialize(factory=get_stats_factory(), export_legacy_names=True)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(RECORDS))
    run = Run(scene, monkeypatch, InProcess())
    run.execute("plan")
    with pytest.raises(AirflowException):  # the task that copies did not work
        run.execute("report")
    of = f",replication={scene.replication().name}"
    assert server.heard() == [(f"runs{of},outcome=failed", "1|c"), (f"ranges{of},outcome=failed", "1|c")]


def test_the_watch_sends_how_each_replication_stands(
    scene: Scenario, server: StatsD, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(RECORDS))
    scene.run()
    scene.source.produce(scene.topic, numbered(3))
    Run(scene, monkeypatch, InProcess())  # the connections and the store
    folder = scene.folder / "replications"
    folder.mkdir()
    (folder / "file.yaml").write_text(json.dumps(scene.document()))
    context: Any = {}
    WatchOperator(task_id="watch", folder=folder).execute(context)
    heard = dict(server.heard())
    name = scene.replication().name.replace(".", "__")
    assert float(heard.pop(f"{name}.seconds_since_verified").removesuffix("|g")) >= 0
    assert float(heard.pop(f"{name}.lag_seconds").removesuffix("|g")) >= 0
    assert heard == {f"{name}.lag_records": "3|g", f"{name}.failed_records": "0|g", f"{name}.open_alerts": "0|g"}
