"""The DAG ``replications.watch``: one task that looks at all replications every minute and sends their alerts."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowException

from kafka_replication.config import Replication
from kafka_replication.config.values.names import WATCH_DAG
from kafka_replication.model.errors import ReplicationError
from kafka_replication.orchestration.connecting.store_url import store
from kafka_replication.orchestration.dags.dag_factory import START
from kafka_replication.orchestration.dags.import_errors import good_replications
from kafka_replication.orchestration.operators import stats

if TYPE_CHECKING:
    from airflow.sdk import Context

EVERY_MINUTE = "* * * * *"
LONGEST = timedelta(minutes=10)
DOC = """\
Looks at every replication: runs that failed, died or make no progress, schedules that were missed, clusters and a store
that do not answer, gaps, and lag beyond `alerts.lag`. Sends one alert for each cause, and one when it is healed. See
docs/alerts.md. A scheduler that stands still cannot run it: `kafka-replication watch` on another machine notices that.
"""


class WatchOperator(BaseOperator):
    """Looks once at each replication file of a folder that has no mistake."""

    ui_color = "#fde3e3"

    def __init__(self, *, folder: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder = folder

    def execute(self, context: Context) -> dict[str, list[str]]:
        """Returns the open causes of each replication. Fails if one replication could not be watched."""
        from kafka_replication.runs.watch.watching import side_by_side

        replications = good_replications(self.folder)
        names = [replication.name for replication in replications]
        results = side_by_side(replications, lambda replication: self._look(replication, context))
        self._send_stats(names)
        if failed := [str(result) for result in results if isinstance(result, Exception)]:
            raise AirflowException("\n".join(failed))
        return {
            name: causes for name, causes in zip(names, results, strict=True) if isinstance(causes, list) and causes
        }

    def _send_stats(self, names: list[str]) -> None:
        try:
            stats.looked(store, names)
        except ReplicationError as problem:
            self.log.warning("no metrics were sent: the store cannot be used: %s", problem)

    def _look(self, replication: Replication, context: Context) -> list[str] | Exception:
        from kafka_replication.orchestration.alerting.watching import watcher

        try:
            return [str(row.key) for row in watcher(replication, dict(context)).look().announced]
        except Exception as problem:
            self.log.exception("%s cannot be watched", replication.name)
            return problem


def build_watch_dag(folder: Path) -> DAG:
    with DAG(
        dag_id=WATCH_DAG,
        schedule=EVERY_MINUTE,
        start_date=START,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,  # alerts work without a further step
        description="Sends alerts about all replications",
        doc_md=DOC,
        tags=["kafka-replication"],
        default_args={"owner": "airflow", "retries": 0},
    ) as dag:
        WatchOperator(task_id="watch", folder=folder, execution_timeout=LONGEST)
    return dag
