"""Addresses: of the pages, and of Airflow's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from kafka_replication.config.values.names import BACKFILL_SUFFIX
from kafka_replication.documents import StatusRow
from kafka_replication.watermarks.failed import FailedRow
from kafka_replication.web.actions import SUFFIXES, Action


@dataclass(frozen=True, slots=True)
class Site:
    """``base`` is the path of these pages, ``airflow`` the path of Airflow; neither ends in a slash."""

    base: str
    airflow: str

    def replication(self, name: str) -> str:
        return f"{self.base}/replications/{quote(name, safe='')}"

    def partition(self, name: str, row: StatusRow) -> str:
        place = urlencode({"topic": row.topic, "partition": row.partition, "target": row.target_topic})
        return f"{self.replication(name)}/partition?{place}"

    def ranges(self, name: str, run_id: str) -> str:
        """The page of a run with its ranges."""
        return f"{self.replication(name)}/run?{urlencode({'run_id': run_id})}"

    def dag(self, dag_id: str) -> str:
        return f"{self.airflow}/dags/{quote(dag_id, safe='')}"

    def run(self, name: str, run_id: str) -> str | None:
        """Airflow's page of a run; None for one that a command started."""
        at = dag_run_of(name, run_id)
        return None if at is None else f"{self.dag(at[0])}/runs/{quote(at[1], safe='')}"

    def one_record(self, action: Action, row: FailedRow) -> Mapping[str, Any]:
        """The configuration of the action for this record alone."""
        at = row.key.source
        place = {"topic": at.topic, "partition": at.partition, "from": row.offset, "until": row.offset + 1}
        return {**action.conf, **place}


def store_run_id(dag_id: str, dag_run_id: str) -> str:
    """The id under which the store has a DAG run; `orchestration.task_run` makes it."""
    return f"airflow-{dag_id}-{dag_run_id}"


def dag_run_of(name: str, run_id: str) -> tuple[str, str] | None:
    """The DAG and its run behind a run of the store; None for one that a command started."""
    for dag_id in (name, f"{name}{BACKFILL_SUFFIX}"):
        if run_id.startswith(prefix := store_run_id(dag_id, "")):
            return dag_id, run_id.removeprefix(prefix)
    return None


def replication_of(dag_id: str) -> str:
    """The replication whose DAG this is."""
    for suffix in SUFFIXES:
        if dag_id.endswith(suffix):
            return dag_id.removesuffix(suffix)
    return dag_id
