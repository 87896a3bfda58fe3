"""Reports the end of a DAG's run. A failed run is reported in the task's log and by an alert. After a good run, open
causes may be healed.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from importlib.abc import InspectLoader
from typing import TYPE_CHECKING, Any

from kafka_replication.config import Replication
from kafka_replication.config.values.names import BACKFILL_SUFFIX
from kafka_replication.model.errors import ConfigError, ReplicationError
from kafka_replication.orchestration import task_run
from kafka_replication.runtime import background

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)
# Airflow kills a task's process 20 s after its end ([core] task_success_overtime), and then tries the task again, even
# if no further try was wanted. So alerting has a budget, and this process ends in time even if a channel hangs.
TELLING = 10.0
ENDING = 14.0


def on_failure(replication: Replication) -> Callable[[Context], None]:
    """An ``on_failure_callback`` for the two tasks that can end a failed run: ``plan`` (without a plan no other task
    runs) and ``report``.
    """

    def alert(context: Context) -> None:
        from kafka_replication.orchestration.alerting import watching

        log.error("%s", message(replication, context))
        why = task_run.error_of(context.get("exception")) or str(
            context.get("exception") or "its task was killed or lost"
        )
        run_id, is_backfill = task_run.run_id(context), context["dag"].dag_id.endswith(BACKFILL_SUFFIX)
        teller = watching.watcher(replication, dict(context), TELLING)
        _in_time(replication, lambda: teller.tell(why, run_id, is_backfill=is_backfill))

    return alert


def on_retry(replication: Replication) -> Callable[[Context], None]:
    """An ``on_retry_callback``: a cluster that does not answer is told at the first try that fails because of it. All
    other reasons wait for the end of the run: the next try may do it.
    """

    def alert(context: Context) -> None:
        from kafka_replication.orchestration.alerting import watching

        error, run_id = task_run.error_of(context.get("exception")), task_run.run_id(context)
        if error is not None:
            teller = watching.watcher(replication, dict(context), TELLING)
            _in_time(replication, lambda: teller.tell_try(error, run_id))

    return alert


def _in_time(replication: Replication, action: Callable[[], object]) -> None:
    """Do this if alerts reach anybody. After `ENDING` seconds it is left behind, with a line in the log. Its error is
    logged: the watch DAG looks later.
    """

    def logged() -> None:
        try:
            action()
        except ReplicationError as untold:
            log.error("%s: no alert could be sent: %s", replication.name, untold)
        except Exception:
            log.exception("the end of a run could not be reported")

    if replication.alerts.names_somebody and wait([background.begin(logged, "telling")], ENDING).not_done:
        log.error("telling did not end within %.0f s and is left behind: the store or a cluster hangs", ENDING)


def on_success(replication: Replication) -> Callable[[Context], None]:
    """An ``on_success_callback`` for the last task: open causes may be healed."""

    def heal(context: Context) -> None:
        from kafka_replication.orchestration.alerting import watching

        _in_time(replication, lambda: watching.look(replication, context))

    return heal


def message(replication: Replication, context: Any) -> str:
    """The failures of the run with their places and remedies."""
    task, run = context["ti"], context["run_id"]
    why = (
        context.get("exception")
        or f"the task was killed or lost; its log may say more. Clear '{task.task_id}' with its downstream tasks"
    )
    return f"replication {replication.name} failed: run {run}, task {task.task_id}\n{why}"


def problems(replications: Iterable[Replication]) -> list[ConfigError]:
    """One error for each notifier that does not exist. Only the packages around its module are imported."""
    return [
        ConfigError(
            f"replication {replication.name}: key 'alerts.notifiers[{number}].class': {problem}",
            "correct it, or put the module into plugins/",
        )
        for replication in replications
        for number, notifier in enumerate(replication.alerts.notifiers)
        if (problem := _problem(notifier.class_))
    ]


def _problem(path: str) -> str | None:
    module, _, name = path.rpartition(".")
    try:
        spec = importlib.util.find_spec(module)
    except ImportError as e:
        return f"module '{module}' cannot be found: {e}"
    if spec is None:
        return f"there is no module '{module}'"
    code = spec.loader.get_code(module) if isinstance(spec.loader, InspectLoader) else None
    return f"module '{module}' defines no '{name}'" if code is not None and name not in code.co_names else None
