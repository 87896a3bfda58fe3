"""The DAGs of a folder of replication files: the one import of a DAG file, here and in an Airflow that exists.

Airflow reads only files whose text has the words ``airflow`` and ``dag``, as a file that imports this has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_replication.config import Replication
from kafka_replication.config.names import AUDIT_SUFFIX, BACKFILL_SUFFIX, FAILED_SUFFIX, REPAIR_SUFFIX, WATCH_DAG
from kafka_replication.model.errors import BadInput
from kafka_replication.runtime import extras

try:
    from airflow.sdk import get_parsing_context

    from kafka_replication.orchestration.dag_factory import build_backfill_dag, build_broken_dag, build_dag
    from kafka_replication.orchestration.repair_dags import build_audit_dag, build_failed_dag, build_repair_dag
    from kafka_replication.orchestration.watch_dag import (
        broken_replications,
        build_watch_dag,
        good_replications,
        raise_import_errors,
    )
except ModuleNotFoundError as missing:
    raise BadInput(f"the DAGs need a package that is not installed ({missing})", extras.install("airflow")) from missing

if TYPE_CHECKING:
    from airflow.sdk import DAG

__all__ = ["dags", "raise_import_errors"]
BY_HAND: dict[str, Callable[[Replication], DAG]] = {
    AUDIT_SUFFIX: build_audit_dag,
    BACKFILL_SUFFIX: build_backfill_dag,
    FAILED_SUFFIX: build_failed_dag,
    REPAIR_SUFFIX: build_repair_dag,
}


def dags(folder: Path) -> dict[str, DAG]:
    """All DAGs of the files in a folder, by id, for the DAG file's ``globals()``. A task's process gets its own DAG.

    A broken file has a DAG whose tasks fail, as far as it can be read. `raise_import_errors` names it on Airflow's page
    of import errors. It needs a DAG file of its own, because Airflow takes no DAG from a file that raises.
    """
    good = good_replications(folder)
    builders: dict[str, Callable[[], DAG]] = {
        **{rest.name: partial(build_broken_dag, rest, error) for rest, error in broken_replications(folder)},
        **{each.name: partial(build_dag, each) for each in good},
        **{
            f"{each.name}{suffix}": partial(build, each)
            for suffix, build in BY_HAND.items()
            for each in good
            if suffix != REPAIR_SUFFIX or each.dags.repair
        },
        **({WATCH_DAG: partial(build_watch_dag, folder)} if good else {}),
    }
    own = get_parsing_context().dag_id  # set as a task starts
    return {dag_id: build() for dag_id, build in builders.items() if own in (None, dag_id)}
