"""The DAG file with a deadline that docs/alerts.md shows, as Airflow's scheduler gets it."""

from __future__ import annotations

import re
import runpy
from datetime import timedelta
from pathlib import Path

from airflow.sdk.definitions.deadline import DeadlineReference
from airflow.serialization.serialized_objects import DagSerialization

from tests.dags.conftest import GOOD, REPOSITORY


def test_the_deadline_of_the_docs_reaches_the_scheduler(dags_folder: Path) -> None:
    text = (REPOSITORY / "docs" / "alerts.md").read_text()
    [code] = re.findall(r"```python\n(# kafka_replication_dags.py\n.*?)```", text, re.DOTALL)
    (dags_folder / "replications" / "orders-dr.yaml").write_text(GOOD.format(name="orders-dr"))
    file = dags_folder / "kafka_replication_dags.py"
    file.write_text(code)
    found = runpy.run_path(str(file))
    assert found["orders"].deadline is None
    DagSerialization.from_dict(DagSerialization.to_dict(found["orders-dr"]))
    stored = DagSerialization.to_dict(found["orders-dr"])["dag"]["deadline"]
    assert "SmtpNotifier" in str(stored) and "not done after 20 minutes" in str(stored)
    [alert] = found["orders-dr"].deadline
    assert (alert.reference, alert.interval) == (DeadlineReference.DAGRUN_QUEUED_AT, timedelta(minutes=20))
