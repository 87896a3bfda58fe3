"""The DAG ``<name>.backfill`` of each replication. A person triggers it and names the range in its form."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG, Param

from kafka_replication.config import Replication
from kafka_replication.config.time import TIME_PATTERN
from kafka_replication.orchestration.backfill_operators import BackfillPlanOperator
from kafka_replication.orchestration.doc_md import backfill_md
from kafka_replication.orchestration.import_errors import good_replications
from kafka_replication.orchestration.tasks import add_tasks, default_args

SUFFIX = ".backfill"
TOPIC = "^[A-Za-z0-9._-]{1,249}$"
POINT = f"^(0|[1-9][0-9]{{0,18}}|{TIME_PATTERN})$"


def load_backfill_dags(folder: Path) -> dict[str, DAG]:
    """The backfill DAGs of all good files in a folder, by id. `import_errors` reports the broken files."""
    return {f"{replication.name}{SUFFIX}": build_backfill_dag(replication) for replication in good_replications(folder)}


def build_backfill_dag(replication: Replication) -> DAG:
    """``plan >> replicate >> report``, never scheduled. One at a time, beside live runs with other target topics."""
    with DAG(
        dag_id=f"{replication.name}{SUFFIX}",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        description=f"Copies a range of {replication.name} that the trigger's form names",
        doc_md=backfill_md(replication),
        tags=[*replication.tags, "backfill"],
        params=_params(),
        default_args=default_args(replication),
    ) as dag:
        add_tasks(replication, BackfillPlanOperator(task_id="plan", replication=replication))
    return dag


def _params() -> dict[str, Param]:
    """The form. `kafka_replication.planning.backfill_request` reads its values again, more strictly.

    Airflow shows a field with several types as a line of text if it has ``examples``, and as a JSON editor otherwise.
    """
    return {
        "topics": Param(
            type="array",
            items={"type": "string", "pattern": TOPIC},
            minItems=1,
            uniqueItems=True,
            title="Topics",
            description="Source topics of the replication, one a line.",
        ),
        "partitions": Param(
            None,
            type=["null", "string", "array"],
            pattern=r"^ *\d{1,10}( *, *\d{1,10})* *$",
            title="Partitions",
            examples=["0", "0, 3"],
            items={"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
            uniqueItems=True,
            description="Only these partitions, separated by commas; empty means all.",
        ),
        "from": Param(
            type=["string", "integer"],
            pattern=POINT,
            minimum=0,
            title="From",
            examples=["0", "2030-01-31T06:00:00Z"],
            description="The first offset, or an RFC 3339 time with its zone such as 2030-01-31T06:00:00Z.",
        ),
        "until": Param(
            type=["string", "integer"],
            pattern=POINT,
            minimum=0,
            title="Until",
            examples=["100000", "2030-01-31T07:00:00Z"],
            description="The first offset, or time, that is left out.",
        ),
        "target_topic": Param(
            None,
            type=["null", "string"],
            pattern=TOPIC,
            title="Target topic",
            description=(
                "Copy to this topic instead of the replication's own, in the source's order; name one source topic"
                " only."
            ),
        ),
        "dry_run": Param(
            False, type="boolean", title="Dry run", description="Only show what would be copied; change nothing."
        ),
    }
