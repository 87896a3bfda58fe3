"""Reports the end of a DAG's run. A failed run is reported in the task's log, by the function that the replication file
names, and by an alert. After a good run, open causes may be healed.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import wait
from functools import partial
from importlib.abc import InspectLoader
from typing import TYPE_CHECKING, Any

from kafka_replication.config import Replication
from kafka_replication.config.sections.alerts import Alerts
from kafka_replication.model.errors import ConfigError, ReplicationError
from kafka_replication.orchestration import task_run
from kafka_replication.runtime import background

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)
ALERT = "alert"
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
        from kafka_replication.orchestration.alerting.notifiers import FIELDS

        text = message(replication, context)
        log.error("%s", text)
        why = task_run.error_of(context.get("exception")) or str(
            context.get("exception") or "its task was killed or lost"
        )
        _side_by_side(
            lambda: watching.tell(replication, dict(context), why, task_run.run_id(context), TELLING),
            lambda: _call(replication.alerts.callback, {**context, ALERT: text, FIELDS: fields(context, why)}),
        )

    def fields(context: Context, why: ReplicationError | str) -> list[dict[str, str]]:
        from kafka_replication.orchestration.alerting import watching

        return watching.fields(replication, dict(context), why, task_run.run_id(context))

    return alert


def on_retry(replication: Replication) -> Callable[[Context], None]:
    """An ``on_retry_callback``: a cluster that does not answer is told at the first try that fails because of it. All
    other reasons wait for the end of the run: the next try may do it.
    """

    def alert(context: Context) -> None:
        from kafka_replication.orchestration.alerting import watching

        error, run_id = task_run.error_of(context.get("exception")), task_run.run_id(context)
        if error is not None:
            _side_by_side(lambda: watching.tell_try(replication, dict(context), error, run_id, TELLING))

    return alert


def _call(callback: str | None, context: dict[str, Any]) -> None:
    """Call the function that the replication file names."""
    if callback is not None:
        module, _, name = callback.partition(":")
        getattr(importlib.import_module(module), name)(context)


def _side_by_side(*actions: Callable[[], None]) -> None:
    """Do all of these at the same time. After `ENDING` seconds the unfinished ones are left behind, with a line in the
    log. The error of one action is logged, and does not stop the others.
    """
    begun = [background.begin(partial(_logged, action), "telling") for action in actions]
    if wait(begun, ENDING).not_done:
        who = "the store, a cluster or alerts.callback hangs"
        log.error("telling did not end within %.0f s and is left behind: %s", ENDING, who)


def _logged(action: Callable[[], None]) -> None:
    try:
        action()
    except Exception:
        log.exception("the end of a run could not be reported")


def on_success(replication: Replication) -> Callable[[Context], None]:
    """An ``on_success_callback`` for the last task: open causes may be healed."""

    def heal(context: Context) -> None:
        from kafka_replication.orchestration.alerting import watching

        _side_by_side(lambda: watching.look(replication, dict(context)))

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
    """One error for each callback or notifier that does not exist. Only the packages around its module are imported."""
    return [
        ConfigError(
            f"replication {replication.name}: key '{key}': {problem}",
            "correct it, or put the module into plugins/",
        )
        for replication in replications
        for key, module, name in _named(replication.alerts)
        if (problem := _problem(module, name))
    ]


def _named(alerts: Alerts) -> Iterator[tuple[str, str, str]]:
    """The key, the module and the name in it of everything that must be importable."""
    if alerts.callback is not None:
        module, _, name = alerts.callback.partition(":")
        yield "alerts.callback", module, name
    for number, notifier in enumerate(alerts.notifiers):
        module, _, name = notifier.class_.rpartition(".")
        yield f"alerts.notifiers[{number}].class", module, name


def _problem(module: str, name: str) -> str | None:
    try:
        spec = importlib.util.find_spec(module)
    except ImportError as e:
        return f"module '{module}' cannot be found: {e}"
    if spec is None:
        return f"there is no module '{module}'"
    code = spec.loader.get_code(module) if isinstance(spec.loader, InspectLoader) else None
    return f"module '{module}' defines no '{name}'" if code is not None and name not in code.co_names else None
