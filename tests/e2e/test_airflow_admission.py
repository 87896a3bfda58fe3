"""Every way to get a login, TLS or an address wrong, told by an Airflow task."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.e2e.airflow_home import Airflow
from tests.support.tls import tls_cluster
from tests.support.ways_in import WRONG


@pytest.mark.slow
def test_each_way_is_told_by_the_task(airflow: Airflow, stack_folder: Path) -> None:
    with tls_cluster(stack_folder) as tls:
        for number, (settings_of, *_) in enumerate(WRONG.values()):
            extra = {"conn_type": "kafka", "extra": settings_of(tls)}
            airflow.environment[f"AIRFLOW_CONN_WRONG_{number}"] = json.dumps(extra)
        for number, (way, (_, _, said, remedy)) in enumerate(WRONG.items()):
            name = f"af-wrong-{number}"
            file = airflow.replicate(name, "af-wrong")
            file.write_text(file.read_text().replace("connection: kafka_source", f"connection: wrong_{number}"))
            started = time.monotonic()
            run, log = airflow.run(name)
            print(f"Airflow, {way}: {time.monotonic() - started:.1f} s for the whole run")
            assert (run["state"], run["tasks"]["plan"]) == ("failed", "failed"), way
            [_, text] = log.split(f"replication {name} failed: run ")
            assert said in text and remedy in text, (way, text)
