"""A process of its own that runs DAGs and commands of Airflow for the tests, one after the other. Its first run loads Airflow's API, which
takes seconds; the others do not.

Reads a request a line from stdin (`Request` or `Command`), and answers each with one JSON line. What it logs goes to the file that the
request names.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypedDict, final

from airflow.__main__ import main as airflow
from airflow.dag_processing.bundles.manager import DagBundlesManager


@final
class Request(TypedDict):
    """One run. ``logical_date`` is RFC 3339, or empty: now."""

    dag_file: str
    dag_id: str
    conf: Mapping[str, Any]
    logical_date: str
    log: str  # a file that is written anew


@final
class Command(TypedDict):
    """``airflow`` with these arguments."""

    arguments: list[str]
    log: str


def command(request: Command) -> dict[str, Any]:
    """What it ends with: 0, or what Airflow gives as the reason of a failure."""
    sys.argv = ["airflow", *request["arguments"]]
    try:
        airflow()  # type: ignore[no-untyped-call]
    except SystemExit as end:
        return {"state": "ended", "code": end.code or 0}
    return {"state": "ended", "code": 0}


def run(request: Request) -> dict[str, Any]:
    """Run the DAG as it is in the file now; what became of it."""
    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    date = request["logical_date"]
    when = {"logical_date": datetime.fromisoformat(date)} if date else {}
    dag_id = request["dag_id"]
    done = runpy.run_path(request["dag_file"])[dag_id].test(run_conf=request["conf"], **when)
    from airflow.models.asset import AssetEvent
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    returned = {}
    with create_session() as session:
        for name in ("plan", "report", "audit", "handle"):
            found = session.scalars(
                XComModel.get_many(key="return_value", run_id=done.run_id, dag_ids=dag_id, task_ids=name)
            ).first()
            returned[name] = XComModel.deserialize_value(found) if found else None
        events = session.scalars(select(AssetEvent).where(AssetEvent.source_run_id == done.run_id))
        updated = {event.asset.uri: event.extra for event in events if event.source_dag_id == dag_id}
    tasks = {each.task_id: str(each.state) for each in done.get_task_instances()}
    return {"state": str(done.state), "tasks": tasks, "assets": updated, **returned}


@contextmanager
def written_to(file: str) -> Iterator[None]:
    """Both streams go to this file, also those of child processes."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    log = os.open(file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND)
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, stream in enumerate(kept, 1):
            os.dup2(stream, number)
            os.close(stream)
        os.close(log)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request: Request | Command = json.loads(line)
        with written_to(request["log"]):
            try:
                answer = command(request) if "arguments" in request else run(request)
            except Exception:  # noqa: BLE001  # whatever it is, the test shows it
                traceback.print_exc()
                answer = {"state": "not run"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
