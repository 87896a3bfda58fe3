"""One DAG run as a `Run`: its id, what its trigger asked for, its lease, and its errors in Airflow's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_replication.config import Replication
from kafka_replication.config.time import parse_start
from kafka_replication.model.errors import BadInput, Fenced, ReplicationError
from kafka_replication.orchestration.connections import AirflowConnections
from kafka_replication.orchestration.store_url import store
from kafka_replication.planning.plan import Plan
from kafka_replication.runs.leasing import acquire_lease
from kafka_replication.runs.run import LeasedRun, Request, Run, open_run
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.watermarks.lease import Release

if TYPE_CHECKING:
    from airflow.sdk import Context


def run_id(context: Context) -> str:
    """The same for every task and every try of one DAG run, so that each finds the stored plan and the lease is its
    own.
    """
    return f"airflow-{context['dag'].dag_id}-{context['run_id']}"


def request_of(params: Any) -> Request:
    """What the trigger's form asked for. Raises BadInput."""
    until = params["until"]
    try:
        moment = parse_start(until)
    except ValueError as e:
        raise BadInput(
            f"until: {until!r} {e}", "trigger again with latest, or a time such as 2030-01-31T06:00:00Z"
        ) from e
    return Request(tuple(params["topics"]), moment if isinstance(moment, datetime) else None, params["dry_run"])


@contextmanager
def opened(replication: Replication, context: Context) -> Iterator[Run]:
    """The run without its lease: for looking only."""
    with failing(), closing(store()) as watermarks:
        deadline = Deadline.after(replication.timeouts.run)
        yield open_run(replication, AirflowConnections(), watermarks, run_id(context), deadline)


@contextmanager
def working(replication: Replication, context: Context, *, release: Release = "never") -> Iterator[LeasedRun]:
    """The run under its lease, which this try of the task holds and renews while the body runs.

    A lease that is not released stays reserved for the run's next task, or for the next try of this one.
    """
    attempt = f"{context['ti'].task_id}, try {context['ti'].try_number},"
    with (
        opened(replication, context) as run,
        acquire_lease(replication, run.store, run.run_id, attempt=attempt, release=release) as lease,
    ):
        yield run.holding(lease.check)


def planned(run: Run) -> Plan:
    """The plan that the plan task stored. Raises BadInput where there is none."""
    known = run.stored_plan()
    if known is None:
        raise BadInput(f"run {run.run_id} has no plan", "clear its plan task, which plans it; or trigger a new run")
    return known


def stopped() -> AirflowException:
    """For ``on_kill``: Airflow calls it when it stops a task, which would go on otherwise until it is killed."""
    return AirflowException("the task was asked to end; what is committed stays, and the next try goes on from there")


@contextmanager
def failing() -> Iterator[None]:
    """Turn this package's errors into Airflow's: what no retry can heal fails the task at once."""
    try:
        yield
    except ReplicationError as e:
        raise failure(str(e), retriable=e.retriable or isinstance(e, Fenced)) from e


def failure(message: str, *, retriable: bool) -> AirflowException:
    """A try that failed, or with ``retriable`` false the task as a whole."""
    return AirflowException(message) if retriable else AirflowFailException(message)
