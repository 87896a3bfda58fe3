"""What happens when a run of a DAG ends: a failed one is reported in the task's log, through the function that the
replication file names, and by an alert; a good one may heal what is open.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator
from importlib.abc import InspectLoader
from typing import TYPE_CHECKING, Any

from kafka_replication.config import Replication
from kafka_replication.config.alerts import Alerts
from kafka_replication.config.names import BACKFILL_SUFFIX
from kafka_replication.model.errors import ConfigError
from kafka_replication.orchestration import task_run, watching
from kafka_replication.runs.watching import reported_failure

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)
ALERT = "alert"


def on_failure(replication: Replication) -> Callable[[Context], None]:
    """An ``on_failure_callback`` for the two tasks that can end a failed run: ``plan`` (without a plan no other task
    runs) and ``report``.
    """

    def alert(context: Context) -> None:
        text = message(replication, context)
        log.error("%s", text)
        if replication.alerts.callback:
            module, _, name = replication.alerts.callback.partition(":")
            getattr(importlib.import_module(module), name)({**context, ALERT: text})
        why = task_run.error_of(context.get("exception")) or str(
            context.get("exception") or "its task was killed or lost"
        )
        is_backfill = context["dag"].dag_id.endswith(BACKFILL_SUFFIX)
        reported = reported_failure(why, task_run.run_id(context), is_backfill=is_backfill)
        watching.look(replication, dict(context), reported)

    return alert


def on_success(replication: Replication) -> Callable[[Context], None]:
    """An ``on_success_callback`` for the last task: what was open may be healed."""

    def heal(context: Context) -> None:
        watching.look(replication, dict(context))

    return heal


def message(replication: Replication, context: Any) -> str:
    """What failed, where, and the remedies."""
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
