"""Reports the end of a DAG's run. A failed run is reported in the task's log and by an alert. After a good run, open
causes may be healed.

The tasks that every DAG of a replication has: ``plan >> replicate >> report``.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from concurrent.futures import wait
from datetime import timedelta
from functools import partial
from importlib.abc import InspectLoader
from typing import TYPE_CHECKING

from airflow.sdk import TriggerRule

from kafka_replication.config import Replication
from kafka_replication.config.names import BACKFILL_SUFFIX
from kafka_replication.model.errors import ConfigError, ReplicationError
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.operators import (
    BrokenFileOperator,
    ReplicateOperator,
    ReportOperator,
    StepOperator,
)
from kafka_replication.orchestration.task_run import PLAN
from kafka_replication.runtime import background

if TYPE_CHECKING:
    from airflow.sdk import Context


log = logging.getLogger(__name__)
# Airflow kills a task's process 20 s after its end ([core] task_success_overtime), and then tries the task again, even
# if no further try was wanted. So alerting has a budget, and this process ends in time even if a channel hangs.
TELLING = 10.0
ENDING = 14.0


def on_failure(replication: Replication, context: Context) -> None:
    """An ``on_failure_callback`` of this replication, for the two tasks that can end a failed run: ``plan`` (without a
    plan no other task runs) and ``report``.
    """
    from kafka_replication.orchestration import watching

    task = context["ti"].task_id
    reason = context.get("exception") or (
        f"the task was killed or lost; its log may say more. Clear '{task}' with its downstream tasks"
    )
    log.error("replication %s failed: run %s, task %s\n%s", replication.name, context["run_id"], task, reason)
    why = task_run.error_of(context.get("exception")) or str(context.get("exception") or "its task was killed or lost")
    run_id, is_backfill = task_run.run_id(context), context["dag"].dag_id.endswith(BACKFILL_SUFFIX)
    teller = watching.watcher(replication, dict(context), TELLING)
    _in_time(replication, lambda: teller.tell(why, run_id, is_backfill=is_backfill))


def on_retry(replication: Replication, context: Context) -> None:
    """An ``on_retry_callback``: a cluster that does not answer is told at the first try that fails because of it. All
    other reasons wait for the end of the run: the next try may do it.
    """
    from kafka_replication.orchestration import watching

    error, run_id = task_run.error_of(context.get("exception")), task_run.run_id(context)
    if error is not None:
        teller = watching.watcher(replication, dict(context), TELLING)
        _in_time(replication, lambda: teller.tell_try(error, run_id))


def on_success(replication: Replication, context: Context) -> None:
    """An ``on_success_callback`` for the last task: open causes may be healed."""
    from kafka_replication.orchestration import watching

    _in_time(replication, lambda: watching.look(replication, context))


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


def problems(replication: Replication) -> list[ConfigError]:
    """One error for each notifier that does not exist. Only the packages around its module are imported."""
    return [
        ConfigError(
            f"replication {replication.name}: key 'alerts.notifiers[{number}].class': {problem}",
            "correct it, or put the module into plugins/",
        )
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


REPLICATE, REPORT = "replicate", "report"
TASKS = (PLAN, REPLICATE, REPORT)
# A broker restarts and a leader moves in the first wait; it doubles, and the longest one is that of an outage.
RETRY_DELAY, LONGEST_RETRY_DELAY = timedelta(seconds=30), timedelta(minutes=10)


def default_args(replication: Replication) -> dict[str, object]:
    return {
        "retries": replication.retries.attempts,
        "retry_delay": RETRY_DELAY,
        "retry_exponential_backoff": 2,
        "max_retry_delay": LONGEST_RETRY_DELAY,
    }


def add_tasks(replication: Replication, plan: StepOperator) -> None:
    """Add the tasks after ``plan``. The report also runs after a failed replication, but never without a plan.

    Its trigger rule needs one success among the tasks directly before it, and ``plan`` is one of them.
    """
    alert, retry = partial(on_failure, replication), partial(on_retry, replication)
    plan.on_failure_callback, plan.on_retry_callback = [alert], [retry]
    replicate = ReplicateOperator(task_id=REPLICATE, replication=replication, on_retry_callback=retry)
    report = ReportOperator(
        task_id=REPORT,
        replication=replication,
        done_by=REPLICATE,
        trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
        on_failure_callback=alert,
        on_retry_callback=retry,
        on_success_callback=partial(on_success, replication),
    )
    plan >> replicate >> report
    plan >> report


def add_broken_tasks(rest: Replication, error: ConfigError) -> None:
    """Add the tasks for a file with mistakes. It has all of them, for a run that is already at work."""
    alert = partial(on_failure, rest)
    plan, replicate, report = (BrokenFileOperator(task_id=name, error=error, retries=0) for name in TASKS)
    plan.on_failure_callback = report.on_failure_callback = [alert]
    report.trigger_rule = TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    plan >> replicate >> report
    plan >> report
