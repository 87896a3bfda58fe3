"""The DAGs of a folder of replication files: the one import of a DAG file, here and in an Airflow that exists.

Airflow reads only files whose text has the words ``airflow`` and ``dag``, as a file that imports this has.

The DAG ``replications.watch``: one task that looks at all replications every minute and sends their alerts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_replication.config import Replication, names
from kafka_replication.config.reading import load_all
from kafka_replication.model.errors import BadInput, ConfigError, ReplicationError
from kafka_replication.runtime import extras

try:
    from airflow.sdk import DAG, BaseOperator, get_parsing_context
    from airflow.sdk.exceptions import AirflowException

    from kafka_replication.orchestration import observability, tasks
    from kafka_replication.orchestration.connections import store
    from kafka_replication.orchestration.dag_factory import START, build_backfill_dag, build_broken_dag, build_dag
    from kafka_replication.orchestration.repair_dags import (
        build_audit_dag,
        build_failed_dag,
        build_groups_dag,
        build_repair_dag,
    )
    from kafka_replication.orchestration.turning_dags import build_drill_dag, build_turn_dag
except ModuleNotFoundError as missing:
    raise BadInput(f"the DAGs need a package that is not installed ({missing})", extras.install("airflow")) from missing

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["dags", "raise_import_errors"]
BY_HAND: dict[str, Callable[[Replication], DAG]] = {
    names.AUDIT_SUFFIX: build_audit_dag,
    names.BACKFILL_SUFFIX: build_backfill_dag,
    names.DRILL_SUFFIX: build_drill_dag,
    names.FAILED_SUFFIX: build_failed_dag,
    names.GROUPS_SUFFIX: build_groups_dag,
    names.REPAIR_SUFFIX: build_repair_dag,
}


def dags(folder: Path) -> dict[str, DAG]:
    """All DAGs of the files in a folder, by id, for the DAG file's ``globals()``. A task's process gets its own DAG.

    A broken file has a DAG whose tasks fail, as far as it can be read. `raise_import_errors` names it on Airflow's page
    of import errors. It needs a DAG file of its own, because Airflow takes no DAG from a file that raises.
    """
    good, broken = _read(folder)
    builders: dict[str, Callable[[], DAG]] = {
        **{
            rest.name: partial(build_broken_dag, _tellable(rest), _together(errors))
            for rest, errors in broken
            if rest is not None
        },
        **{each.name: partial(build_dag, each) for each in good},
        **{f"{each.name}{suffix}": partial(build, each) for each in good for suffix, build in _beside(each, folder)},
        **({names.WATCH_DAG: partial(build_watch_dag, folder)} if good else {}),
    }
    own = get_parsing_context().dag_id  # set as a task starts
    return {dag_id: build() for dag_id, build in builders.items() if own in (None, dag_id)}


def _beside(replication: Replication, folder: Path) -> Iterator[tuple[str, Callable[[Replication], DAG]]]:
    """The DAGs beside that of the replication; the one for consumer groups only if it moves some, those that seal it,
    or drill that, only if it can be sealed.
    """
    without = set() if replication.groups.include else {names.GROUPS_SUFFIX}
    without |= {names.DRILL_SUFFIX, names.TURN_SUFFIX} if replication.not_one_to_one else set()
    builders: dict[str, Callable[[Replication], DAG]] = {
        **BY_HAND,
        names.TURN_SUFFIX: partial(build_turn_dag, folder=folder),
    }
    return ((suffix, build) for suffix, build in builders.items() if suffix not in without)


def raise_import_errors(folder: Path) -> None:
    """Does nothing if all files are good. Raises ConfigError with ``FILE:LINE: key ...`` for each mistake.

    A DAG file that defines no DAG calls it. In the DAG file of `dags` it would make every good DAG stale.
    """
    _, broken = _read(folder)
    if broken:
        raise _together([error for _, errors in broken for error in errors], "broken replication files:")


def _read(folder: Path) -> tuple[list[Replication], list[tuple[Replication | None, list[ConfigError]]]]:
    """The replications of all files without a mistake; of each other file what can be read, and its mistakes."""
    replications, files = load_all(folder)
    good, broken = list[Replication](), [(file.rest, [file.error]) for file in files]
    for replication in replications.values():
        if errors := tasks.problems(replication):
            broken.append((replication, errors))
        else:
            good.append(replication)
    return good, broken


def _together(mistakes: Iterable[ConfigError], *heading: str) -> ConfigError:
    errors = list(mistakes)
    remedies = dict.fromkeys(error.remedy for error in errors)
    return ConfigError("\n".join([*heading, *(error.what for error in errors)]), "; ".join(remedies))


def _tellable(replication: Replication) -> Replication:
    """The replication without its notifiers, if one of them does not exist."""
    if not tasks.problems(replication):
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

        replications, _ = _read(self.folder)
        watched = [replication.name for replication in replications]
        results = side_by_side(replications, lambda replication: self._look(replication, context))
        try:
            observability.looked(store, watched)
        except ReplicationError as problem:
            self.log.warning("no metrics were sent: the store cannot be used: %s", problem)
        if failed := [str(result) for result in results if isinstance(result, Exception)]:
            raise AirflowException("\n".join(failed))
        return {
            name: causes for name, causes in zip(watched, results, strict=True) if isinstance(causes, list) and causes
        }

    def _look(self, replication: Replication, context: Context) -> list[str] | Exception:
        from kafka_replication.orchestration.watching import watcher

        try:
            return [str(row.key) for row in watcher(replication, dict(context)).look().announced]
        except Exception as problem:
            self.log.exception("%s cannot be watched", replication.name)
            return problem


def build_watch_dag(folder: Path) -> DAG:
    with DAG(
        dag_id=names.WATCH_DAG,
        schedule=EVERY_MINUTE,
        start_date=START,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,  # alerts work without a further step
        description="Sends alerts about all replications",
        doc_md=DOC,
        tags=["kafka-replication"],
        default_args={"retries": 0},
    ) as dag:
        WatchOperator(task_id="watch", folder=folder, execution_timeout=LONGEST)
    return dag
