"""The task that starts Spark, before it does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException

from kafka_replication.orchestration.dag_factory import build_dag
from kafka_replication.planning import plan_codec
from kafka_replication.planning.plan import Plan
from kafka_replication.store import open_store
from tests.dags.test_backfill_dag import replication
from tests.dags.test_plan_task import store_url

__all__ = ["store_url"]
NAME, RUN = "orders-dr", "airflow-orders-dr-r"


def test_the_stored_plan_is_decoded_once(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1,000 partitions it is half a megabyte."""
    store = open_store(store_url)
    store.start_run(RUN, NAME, "live", plan_codec.encode(Plan(NAME, ())))
    store.close()
    decoded, decode = [], plan_codec.decode

    def counted(*arguments: Any) -> Plan:
        decoded.append(arguments)
        return decode(*arguments)

    monkeypatch.setattr(plan_codec, "decode", counted)
    replicate: Any = build_dag(replication(timeouts={"request": 1, "run": 1})).get_task("replicate")
    context: Any = {
        "ti": SimpleNamespace(task_id="replicate", try_number=1, xcom_push=lambda *_: None),
        "dag": SimpleNamespace(dag_id=NAME),
        "run_id": "r",
    }
    with pytest.raises(AirflowException):  # no cluster answers
        replicate.execute(context)
    assert len(decoded) == 1
