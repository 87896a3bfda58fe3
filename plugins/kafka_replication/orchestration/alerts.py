"""Reports a failed run once: in the task's log, and through the function that the replication file names."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterable
from importlib.abc import InspectLoader
from typing import TYPE_CHECKING, Any

from kafka_replication.config import Replication
from kafka_replication.model.errors import ConfigError

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

    return alert


def message(replication: Replication, context: Any) -> str:
    """What failed, where, and the remedies."""
    task, run = context["ti"], context["run_id"]
    why = (
        context.get("exception")
        or f"the task was killed or lost; its log may say more. Clear '{task.task_id}' with its downstream tasks"
    )
    return f"replication {replication.name} failed: run {run}, task {task.task_id}\n{why}"


def problems(replications: Iterable[Replication]) -> list[ConfigError]:
    """One error for each callback that does not exist. Only the packages around its module are imported."""
    return [
        ConfigError(
            f"replication {replication.name}: key 'alerts.callback': {problem}",
            "correct it, or put the module into plugins/",
        )
        for replication in replications
        if (problem := _problem(replication.alerts.callback))
    ]


def _problem(callback: str | None) -> str | None:
    if callback is None:
        return None
    module, _, name = callback.partition(":")
    try:
        spec = importlib.util.find_spec(module)
    except ImportError as e:
        return f"module '{module}' cannot be found: {e}"
    if spec is None:
        return f"there is no module '{module}'"
    code = spec.loader.get_code(module) if isinstance(spec.loader, InspectLoader) else None
    return f"module '{module}' defines no '{name}'" if code is not None and name not in code.co_names else None
