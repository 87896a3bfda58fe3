"""One DAG run as a `Run`: its id, its request, its lease, and its errors as Airflow's exceptions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_replication.config import Replication
from kafka_replication.config.expression import parse_time
from kafka_replication.model.errors import BadInput, Fenced, Mistakes, ReplicationError, Unreachable
from kafka_replication.orchestration.connections import AirflowConnections, store
from kafka_replication.planning.backfill_request import LATEST, parse_topics
from kafka_replication.runtime.deadline import Deadline

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_replication.planning.plan import Plan
    from kafka_replication.runs.run import LeasedRun, Request, Run
    from kafka_replication.store.held_lease import Release
    from kafka_replication.watermarks.values import Scope

log = logging.getLogger(__name__)
PLAN = "plan"  # the id of a DAG's first task


def run_id(context: Context) -> str:
    """The same id for every task and every try of a DAG run, so that all of them use the same stored plan and lease."""
    return f"airflow-{context['dag'].dag_id}-{context['run_id']}"


def form_lines(value: object) -> object:
    """The lines of a list without empty ones: Airflow's page sends an empty line for a list that was just emptied."""
    return [line for line in value if line != ""] if isinstance(value, (list, tuple)) else value


def form_text(value: object) -> str:
    """One line of text. Blanks alone, left in an emptied field, count as nothing."""
    return str(value or "").strip()


def request_of(replication: Replication, params: Any) -> Request:
    """The request that the trigger's form describes; what is empty means all. Raises BadInput."""
    from kafka_replication.runs.run import Request

    mistakes = Mistakes()
    moment = mistakes.of(lambda: _until(form_text(params["until"]) or LATEST), None)
    topics = mistakes.of(lambda: parse_topics(replication, form_lines(params["topics"])), ())
    mistakes.raise_all()
    return Request(topics, moment, params["dry_run"])


def _until(until: object) -> datetime | None:
    try:
        return None if until == LATEST else parse_time(str(until))
    except ValueError as e:
        raise BadInput(
            f"until: {until!r} {e}", "trigger again with latest, or a time such as 2030-01-31T06:00:00Z"
        ) from e


@contextmanager
def opened(replication: Replication, context: Context, *, looks: bool = False) -> Iterator[Run]:
    """The run without its lease, for steps that only read. ``looks``: see `run.open_run`."""
    from kafka_replication.runs.run import open_run

    tries_once = replication if context["ti"].task_id == PLAN else None
    with failing(tries_once), closing(store()) as watermarks:
        deadline = Deadline.after(replication.timeouts.run)
        yield open_run(replication, AirflowConnections(), watermarks, run_id(context), deadline, looks=looks)


@contextmanager
def working(
    replication: Replication, context: Context, scope: Callable[[Run], Scope], *, release: Release = "never"
) -> Iterator[LeasedRun]:
    """The run under a lease of ``scope``, which this try of the task holds and renews while the body runs.

    A lease that is not released stays reserved for the run's next task, or for the next try of this one.
    """
    with opened(replication, context) as run, _held(run, context, scope(run), release) as held:
        yield held


@contextmanager
def working_on_plan(replication: Replication, context: Context) -> Iterator[tuple[LeasedRun, Plan]]:
    """The stored plan, and the run under a lease of its target topics. Raises BadInput where there is none."""
    from kafka_replication.runs.leasing import topics_of
    from kafka_replication.watermarks.values import Scope

    with opened(replication, context) as run:
        plan = planned(run)
        with _held(run, context, Scope.exactly(topics_of(plan)), "never") as held:
            yield held, plan


@contextmanager
def _held(run: Run, context: Context, scope: Scope, release: Release) -> Iterator[LeasedRun]:
    from kafka_replication.runs.leasing import acquire_lease

    attempt = f"{context['ti'].task_id}, try {context['ti'].try_number},"
    with acquire_lease(run, scope, attempt=attempt, release=release) as hold:
        yield run.holding(hold)


def planned(run: Run) -> Plan:
    """The plan that the plan task stored. Raises BadInput where there is none."""
    plan = run.stored_plan()
    if plan is None:
        raise BadInput(f"run {run.run_id} has no plan", "clear its plan task, which plans it; or trigger a new run")
    return plan


def stopped() -> AirflowException:
    """The exception for ``on_kill``. Without it, the task would continue until Airflow kills it."""
    return AirflowException("Airflow stopped the task; committed chunks stay, and the next try continues after them")


@contextmanager
def failing(tries_once: Replication | None = None) -> Iterator[None]:
    """Turn this package's errors into Airflow's. An error that is not retriable fails the task without a retry. Nor is
    a cluster that does not answer tried again for a replication that ``tries_once`` and never worked: most likely its
    address is wrong, and somebody waits to hear that.

    What happened and the remedy are lines of their own, before the traceback that Airflow logs: its page cuts the line
    of an exception off.
    """
    # What a failed task's callback needs: it is imported while the task works, since Airflow gives a callback 20 s.
    from kafka_replication.orchestration import watching  # noqa: F401

    try:
        yield
    except ReplicationError as e:
        for line in (*e.what.splitlines(), *([f"remedy: {e.remedy}"] if e.remedy else [])):
            log.error("%s", line)
        is_new = tries_once is not None and isinstance(e, Unreachable) and _never_worked(tries_once)
        if is_new:
            log.error("no further try: nothing of this replication was ever verified")
        from kafka_replication.alerting import telling

        telling.make_ready()  # for the same reason
        retriable = (e.retriable or isinstance(e, Fenced)) and not is_new
        raise failure(str(e), retriable=retriable, error=e) from None


def _never_worked(replication: Replication) -> bool:
    """True if nothing was ever verified, as far as the store knows."""
    try:
        with closing(store()) as watermarks:
            return not watermarks.watermarks(replication.name)
    except ReplicationError:
        return False


def failure(message: str, *, retriable: bool, error: ReplicationError | None = None) -> AirflowException:
    """The exception that fails this try, or with ``retriable`` false the task. `error_of` tells the error."""
    made = AirflowException(message) if retriable else AirflowFailException(message)
    made.replication_error = error  # type: ignore[attr-defined]
    return made


def error_of(exception: object) -> ReplicationError | None:
    """The error of this package that failed a task; None if Airflow has only a text, or nothing."""
    error = getattr(exception, "replication_error", None)
    return error if isinstance(error, ReplicationError) else None
