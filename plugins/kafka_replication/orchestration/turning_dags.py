"""The DAG ``<name>.drill`` of each replication that can be sealed: the command ``drill``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from kafka_replication.config import Replication
from kafka_replication.config.names import DRILL_SUFFIX
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.dag_factory import by_hand
from kafka_replication.orchestration.operators import StepOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class DrillOperator(StepOperator):
    """Says what a failover would leave if the source died now. Fails if that is worse than the file asks."""

    def execute(self, context: Context) -> None:
        """Pushes the document as its return value, before it fails."""
        from kafka_replication.documents import as_json
        from kafka_replication.runs.drill import drill

        with task_run.opened(self.replication, context, looks=True) as run:
            document = drill(run)
        context["ti"].xcom_push("return_value", as_json(document))
        self.log.info("%s", document.text)
        if document.failed:
            errors = [f"{row.source}: {row.error}" for row in document.failover.partitions if row.error]
            raise AirflowFailException("; ".join([document.said, *document.worse, *errors]))


def build_drill_dag(replication: Replication) -> DAG:
    every = replication.objectives.drill_every
    with by_hand(
        replication,
        DRILL_SUFFIX,
        f"What would be left of {replication.name} if its source died now",
        "Does what a failover would do, as far as that changes nothing, and says how many records and which consumer"
        " groups would be concerned. See docs/failover.md.",
        {},
        schedule=timedelta(seconds=every) if every else None,
        max_active_runs=1,
    ) as dag:
        DrillOperator(task_id="drill", replication=replication)
    return dag
