"""A whole Airflow (scheduler, API server) with replications of a test's own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stack.airflow_api import AirflowApi
from stack.airflow_standalone import AirflowSettings, AirflowStandalone
from tests.e2e.airflow_home import REPOSITORY
from tests.support.airflow_page import EMPTIED, sends
from tests.support.clusters import Brokers


@contextlib.contextmanager
def standalone(
    folder: Path,
    source: Brokers,
    target: Brokers,
    replications: list[dict[str, Any]],
    env: Mapping[str, str] | None = None,
) -> Iterator[AirflowStandalone]:
    """Started in ``folder``, stopped in the end. ``replications`` are completed with the connections."""
    dags = folder / "dags"
    (dags / "replications").mkdir(parents=True)
    for file in (REPOSITORY / "dags").glob("*.py"):
        (dags / file.name).write_text(file.read_text())
    for each in replications:
        document = {"source": {"connection": "kafka_source"}, "target": {"connection": "kafka_target"}, **each}
        (dags / "replications" / f"{each['name']}.yaml").write_text(json.dumps(document))
    settings = AirflowSettings(source.bootstrap, target.bootstrap, f"sqlite:///{folder}/store.db", dags, env=env or {})
    started = AirflowStandalone(folder, settings)
    try:
        started.start()
        yield started
    finally:
        started.stop()


class Form:
    """The form of a DAG's trigger, which sends the value of every field, as Airflow's page does."""

    def __init__(self, api: AirflowApi, dag_id: str) -> None:
        self.api, self.dag_id = api, dag_id
        api.wait_for_dag(dag_id)
        api.unpause(dag_id)
        self.fields: dict[str, Any] = api.get(f"dags/{dag_id}/details")["params"]
        assert all(sends(field["schema"], field["value"]) for field in self.fields.values())

    def emptied(self, for_list: object = None) -> dict[str, Any]:
        """All fields that can be empty: null, but for a list, for which the page has other ways, too."""
        assert for_list in EMPTIED
        kinds = {name: field["schema"].get("type", ["null"]) for name, field in self.fields.items()}
        return {name: for_list if "array" in kind else None for name, kind in kinds.items() if "null" in kind}

    def send(self, changed: dict[str, Any]) -> str:
        return self.api.trigger(self.dag_id, {name: field["value"] for name, field in self.fields.items()} | changed)

    def run(self, task: str, **changed: Any) -> Any:
        """What the task of a run that succeeds says."""
        run_id = self.send(changed)
        assert self.api.wait_for_run(self.dag_id, run_id, 600) == "success"
        return self.api.xcom(self.dag_id, run_id, task)

    def refused(self, task: str, **changed: Any) -> str:
        """The log of the task of a run that fails."""
        run_id = self.send(changed)
        assert self.api.wait_for_run(self.dag_id, run_id, 600) == "failed"
        return self.api.logs(self.dag_id, run_id, task)
