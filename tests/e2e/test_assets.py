"""Under a real scheduler: DAGs that wait for verified topics start on these, and not on what failed or is verified in part."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from stack.airflow_api import AirflowApi
from stack.airflow_standalone import AirflowStandalone
from tests.e2e.standalone import standalone
from tests.support.clusters import Brokers
from tests.support.scenario import Cluster, Rec, numbered
from tests.support.statsd import StatsD
from tests.support.waiting import wait_until

NAME = f"af-assets-{uuid4().hex[:8]}"
WHOLE, PARTLY = f"{NAME}.whole", f"{NAME}.partly"
RECORDS = 10
HAS_STATSD = importlib.util.find_spec("statsd") is not None
DOWNSTREAM = """\
from airflow.sdk import Asset, AssetAlias, DAG, task

waited_for = {{topic: Asset("kafka://kafka_target/" + topic) for topic in {topics}}}
for name, asset in {{**waited_for, "{alias}": AssetAlias("{alias}")}}.items():
    with DAG("after-" + name, schedule=[asset], is_paused_upon_creation=False) as dag:

        @task
        def told(asset, triggering_asset_events):
            return [event.extra for event in triggering_asset_events[asset]]

        told(asset)
    globals()[name] = dag
"""


@pytest.fixture
def statsd() -> Iterator[StatsD]:
    server = StatsD()
    yield server
    server.close()


@pytest.fixture
def airflow(
    tmp_path: Path, statsd: StatsD, source_cluster: Brokers, target_cluster: Brokers
) -> Iterator[AirflowStandalone]:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "downstream.py").write_text(DOWNSTREAM.format(topics=[WHOLE, PARTLY], alias=NAME))
    replication = {"name": NAME, "topics": {"include": [f"^{NAME}[.].*"]}, "retries": {"attempts": 0}}
    environment = statsd.environment if HAS_STATSD else {}
    with standalone(tmp_path, source_cluster, target_cluster, [replication], environment) as started:
        yield started


@pytest.mark.slow
def test_a_downstream_dag_starts_on_a_verified_topic_alone(
    airflow: AirflowStandalone, statsd: StatsD, source_cluster: Brokers, target_cluster: Brokers
) -> None:
    source, target = Cluster(source_cluster.bootstrap), Cluster(target_cluster.bootstrap)
    for topic in (WHOLE, PARTLY):
        source.create(topic, 2)
        for partition in range(2):
            source.produce(topic, numbered(RECORDS), partition)
    source.produce(PARTLY, [Rec(None, b"without a key")], 1)
    target.create(PARTLY, 2, {"cleanup.policy": "compact"})  # refuses that one
    with airflow.api() as api:
        for name in (WHOLE, PARTLY, NAME):
            api.wait_for_dag(f"after-{name}")
        api.wait_for_dag(NAME)
        api.unpause(NAME)

        _, report = replicated(api, "failed")
        verified = [line["target_topic"] for line in report["ranges"] if not line["error"]]
        assert sorted(verified) == [PARTLY, WHOLE, WHOLE], "all but one range"
        assert events(api) == []
        if HAS_STATSD:  # the processes of tasks send their metrics, too
            heard = [metric for metric in statsd.heard() if "lag" not in metric[0]]
            of_run = {
                (f"{NAME}.runs.failed", "1|c"),
                (f"{NAME}.ranges.verified", "3|c"),
                (f"{NAME}.ranges.failed", "1|c"),
            }
            assert of_run < set(heard) and f"{NAME}.records" in dict(heard)

        source.produce(WHOLE, numbered(RECORDS), 0)
        only_whole, _ = replicated(api, "success", topics=[WHOLE])
        assert events(api) == [(only_whole, WHOLE)]
        [whole] = started(api, WHOLE, 1)
        assert [(part["from"], part["watermark"]) for part in whole["partitions"]] == [
            (0, RECORDS),
            (RECORDS, 2 * RECORDS),
            (0, RECORDS),
        ], "what the failed run had verified, too"
        assert (whole["records"], whole["target_topic"]) == (3 * RECORDS, WHOLE)

        target.set(PARTLY, **{"cleanup.policy": "delete"})
        rest, report = replicated(api, "success")
        assert events(api) == [(only_whole, WHOLE), (rest, PARTLY)]
        [partly] = started(api, PARTLY, 1)
        assert (partly["run_id"], partly["replication"]) == (report["run_id"], NAME)
        assert partly["partitions"][-1]["watermark"] == RECORDS + 1

        idle, _ = replicated(api, "success")
        assert idle not in {run for run, _ in events(api)}
        assert started(api, NAME, 2) == [whole, partly], "by the alias of the replication"
        assert started(api, WHOLE, 1) == [whole]


def replicated(api: AirflowApi, state: str, **form: Any) -> tuple[str, Any]:
    """The id of a run that ended in this state, and its report."""
    run_id = api.trigger(NAME, form)
    assert api.wait_for_run(NAME, run_id, 600) == state
    return run_id, api.xcom(NAME, run_id, "report")


def events(api: AirflowApi) -> list[tuple[str, str]]:
    """Run and target topic of each event, the oldest first. They are there as soon as the task has ended."""
    found = api.get("assets/events", source_dag_id=NAME, order_by="timestamp")["asset_events"]
    return [(event["source_run_id"], event["extra"]["target_topic"]) for event in found]


def started(api: AirflowApi, name: str, runs: int) -> list[Any]:
    """What the DAG behind this asset was told, once it has run so often."""
    dag_id = f"after-{name}"

    def ended() -> list[dict[str, Any]]:
        found = api.get(f"dags/{dag_id}/dagRuns", order_by="id")["dag_runs"]
        assert len(found) <= runs
        return [run for run in found if run["state"] == "success"]

    wait_until(lambda: len(ended()) == runs, 300)
    return [extra for run in ended() for extra in api.xcom(dag_id, run["dag_run_id"], "told")]
