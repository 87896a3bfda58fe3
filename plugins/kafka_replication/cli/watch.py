"""``kafka-replication watch``: watches replications from outside their runs, and alerts."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_replication.alerting.open_causes import Decision
from kafka_replication.cli.command_frame import Action, Result, default_store, say_store
from kafka_replication.config import Replication
from kafka_replication.config.reading import load_replication
from kafka_replication.connections import EnvironmentConnections
from kafka_replication.documents import OpenCauseRow, SentRow, WatchDocument, WatchedRow
from kafka_replication.documents import as_json as json_of
from kafka_replication.model.errors import BadInput, Busy, ConfigError, ReplicationError
from kafka_replication.model.times import to_text
from kafka_replication.runs.run import Run
from kafka_replication.runtime import stopping

if TYPE_CHECKING:
    from kafka_replication.runs.watching import Watcher

log = logging.getLogger(__name__)
EVERY = 60


def watcher(replication: Replication, *, lasts: bool = True) -> Watcher:
    """A watcher with the connections and the store of this process's environment."""
    from kafka_replication.orchestration import notifiers  # not every run of a terminal has alerts
    from kafka_replication.runs.watching import Watcher

    return Watcher(
        replication=replication,
        connections=EnvironmentConnections(),
        open_store=default_store,
        more=notifiers.channels(replication, {}),
        lasts=lasts,
    )


def watch(
    files: Annotated[
        list[Path], typer.Argument(help="The YAML files of the replications.", metavar="FILE...", show_default=False)
    ],
    once: Annotated[bool, typer.Option("--once", help="Look once and end, for example from cron.")] = False,
    every: Annotated[int, typer.Option("--every", help="Seconds from one look to the next.", min=1)] = EVERY,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout for each look.")] = False,
) -> None:
    """Look at runs, clusters, store and schedule again and again; alert once for each cause, and once when it healed.

    Needs nothing but this host: it notices an Airflow that stands still. The files are read again before each look.
    With --once the exit code is 1 if something is wrong now, 2 if a file is wrong.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    stopping.on_signals()
    with suppress(BadInput):  # every look says it
        say_store()
    pause = threading.Event()
    try:
        while True:
            began = time.monotonic()
            code = _look(files, as_json, lasts=not once)
            if once:
                raise typer.Exit(code)
            pause.wait(max(1.0, began + every - time.monotonic()))
    except KeyboardInterrupt:
        stopping.obeyed()
        raise typer.Exit(0) from None


def _look(files: Sequence[Path], as_json: bool, *, lasts: bool) -> int:
    """Look at each replication once, and print the causes that are open. Returns the exit code."""
    replications, broken = [], 0
    for file in files:
        try:
            replications.append(load_replication(file))
        except ConfigError as problem:
            broken += 1
            log.error("%s", problem)
    from kafka_replication.runs.watching import side_by_side

    decisions = list(zip(replications, side_by_side(replications, partial(_looked, lasts=lasts)), strict=True))
    if as_json:
        document = WatchDocument(replications=[_watched(*decided) for decided in decisions])
        typer.echo(json.dumps(json_of(document), indent=2))
    else:
        for replication, decision in decisions:
            for row in decision.announced if decision else ():
                typer.echo(f"{replication.name}: {row.key} since {to_text(row.since)}: {row.cause.what}")
    wrong = any(decision is None or decision.announced for _, decision in decisions)
    return 2 if broken else int(wrong)


def _looked(replication: Replication, *, lasts: bool = True) -> Decision | None:
    return _decision(replication, lambda: watcher(replication, lasts=lasts).look())


def _decision(replication: Replication, act: Callable[[], Decision]) -> Decision | None:
    """The decision of this look. None, with a line in the log, if nothing could be found out or remembered."""
    try:
        return act()
    except ReplicationError as problem:
        log.error("%s: cannot be watched: %s", replication.name, problem)
    except Exception:
        log.exception("%s: cannot be watched", replication.name)
    return None


def _watched(replication: Replication, decision: Decision | None) -> WatchedRow:
    announced, sent = (decision.announced, decision.alerts) if decision else ((), ())
    return WatchedRow(
        replication=replication.name,
        watched=decision is not None,
        open=[
            OpenCauseRow(
                kind=row.key.kind.value,
                subject=row.key.subject,
                since=to_text(row.since),
                what=row.cause.what,
                remedy=row.cause.remedy,
                where=row.cause.places,
            )
            for row in announced
        ],
        sent=[
            SentRow(event=alert.event.value, kind=alert.open.key.kind.value, subject=alert.open.key.subject)
            for alert in sent
        ],
    )


def watched(action: Action) -> Action:
    """The action of a run, with a look at its replication every minute while it works, and one after it.

    It looks only at a replication with alerts. No error in it changes the run.
    """

    def act(run: Run) -> Result:
        if not run.replication.alerts.names_somebody:
            return action(run)
        with _looking(run.replication):
            result = action(run)
        _looked(run.replication)
        return result

    return act


def run_failed(replication: Replication, run_id: str, problem: ReplicationError, *, is_backfill: bool = False) -> None:
    """Announce the failure of a run at once. A run that only met the lease of another run has not failed."""
    if not replication.alerts.names_somebody or isinstance(problem, Busy):
        return
    try:
        with closing(default_store()) as store:
            stored = store.run(run_id)
            if stored is not None and stored.state == "planned":
                store.finish_run(run_id, "failed")
    except ReplicationError as away:
        log.warning("%s: the end of run %s could not be stored: %s", replication.name, run_id, away)
    _decision(replication, lambda: watcher(replication).tell(problem, run_id, is_backfill=is_backfill))


@contextmanager
def _looking(replication: Replication) -> Iterator[None]:
    stop = threading.Event()

    def keep() -> None:
        while not stop.wait(EVERY):
            _looked(replication)

    thread = threading.Thread(target=keep, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
