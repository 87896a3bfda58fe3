"""A whole Airflow (scheduler, API server) with replications of a test's own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stack.airflow_standalone import AirflowSettings, AirflowStandalone
from tests.e2e.airflow_home import REPOSITORY
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
