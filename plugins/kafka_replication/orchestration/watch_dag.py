"""The DAG ``replications.watch``: one task that looks at all replications every minute and sends their alerts.

Selects the replication files that become DAGs, and raises one import error that names every broken file.

A DAG file that defines no DAG raises the error. In the factory's DAG file it would make every good DAG stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowException

from kafka_replication.config import Replication
from kafka_replication.config.names import WATCH_DAG
from kafka_replication.config.reading import load_all
from kafka_replication.model.errors import ConfigError, ReplicationError
from kafka_replication.orchestration import stats, tasks
from kafka_replication.orchestration.connections import store
from kafka_replication.orchestration.dag_factory import START

if TYPE_CHECKING:
    from airflow.sdk import Context


def good_replications(folder: Path) -> list[Replication]:
    """The replications of all files without a mistake."""
    replications, _ = load_all(folder)
    return [replication for replication in replications.values() if not tasks.problems([replication])]


def broken_replications(folder: Path) -> Iterator[tuple[Replication, ConfigError]]:
    """The readable part of each file with mistakes, and the mistakes."""
    replications, broken = load_all(folder)
    for each in broken:
        if each.rest is not None:
            yield _tellable(each.rest), each.error
    for replication in replications.values():
        if errors := tasks.problems([replication]):
            yield _tellable(replication), _together(errors)


def raise_import_errors(folder: Path) -> None:
    """Does nothing if all files are good. Raises ConfigError with ``FILE:LINE: key ...`` for each mistake."""
    replications, broken = load_all(folder)
    errors = [*(each.error for each in broken), *tasks.problems(replications.values())]
    if errors:
        raise _together(errors, "broken replication files:")


def _together(errors: Iterable[ConfigError], *heading: str) -> ConfigError:
    mistakes = list(errors)
    remedies = dict.fromkeys(error.remedy for error in mistakes)
    return ConfigError("\n".join([*heading, *(error.what for error in mistakes)]), "; ".join(remedies))


def _tellable(replication: Replication) -> Replication:
    """The replication without its notifiers, if one of them does not exist."""
    if not tasks.problems([replication]):
        return replication
    return replication.model_copy(update={"alerts": replication.alerts.model_copy(update={"notifiers": ()})})


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
        from kafka_replication.runs.watching import side_by_side

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
        from kafka_replication.orchestration.watching import watcher

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
