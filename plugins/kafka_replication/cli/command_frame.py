"""The parts that all commands share: reading the file, opening the store, printing one document, exit codes.

Opens the watermark store of a command, and names it in the command's first line.

The ways to send alerts that this command line lacks.
"""

from __future__ import annotations

import getpass
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafka_replication.alerting.telling import WITHOUT_APPRISE
from kafka_replication.config import Replication
from kafka_replication.config.expression import parse_time
from kafka_replication.config.reading import load_replication
from kafka_replication.connections import STORE_URL, EnvironmentConnections
from kafka_replication.documents import FailureDocument
from kafka_replication.documents import as_json as json_of
from kafka_replication.model import commands
from kafka_replication.model.errors import BadInput, ReplicationError
from kafka_replication.model.trouble import Trouble
from kafka_replication.orchestration import notifiers
from kafka_replication.runs import runner
from kafka_replication.runs.run import Run, open_run
from kafka_replication.runtime import extras, stopping
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.spark.workspace import workspace
from kafka_replication.store import open_empty, open_store

if TYPE_CHECKING:
    from kafka_replication.store import WatermarkStore


DEFAULT_STORE = "sqlite:///.state/store.db"


def until_time(text: str) -> datetime:
    """The time in an option ``--until``. Raises BadInput."""
    try:
        return parse_time(text)
    except ValueError as e:
        raise BadInput(f"--until {text!r} {e}", "write it like 2030-01-31T06:00:00Z") from e


def user() -> str:
    """The name of the user at this terminal. Raises BadInput."""
    try:
        return getpass.getuser()
    except (KeyError, OSError) as e:  # a container's user without a name
        raise BadInput("the user of this terminal has no name", "say who decides with --by") from e


def url() -> str:
    return os.environ.get(STORE_URL) or DEFAULT_STORE


def default_store() -> WatermarkStore:
    """The store that the settings name. Creates it if it does not exist."""
    return open_store(url())


def say_store(exists: bool = True, *, writes: bool = True) -> None:
    """Print on stderr which store is used: another one than that of the DAGs lacks their runs. Raises BadInput."""
    from kafka_replication.store import connect

    notes = [] if os.environ.get(STORE_URL) else [f"the default: {STORE_URL} is not set"]
    notes += [] if exists else ["new" if writes else "not there: no run is known, and none is made"]
    typer.echo(f"store: {connect.shown(url())}" + (f" ({'; '.join(notes)})" if notes else ""), err=True)


def store_findings() -> list[Trouble]:
    """The reasons why a run could not write to the store. Raises BadInput, Unreachable."""
    from kafka_replication.store import database

    error = database.why_not_writable(url())
    return [Trouble.of(error, "store")] if error else []


@contextmanager
def store_of_command(*, writes: bool) -> Iterator[WatermarkStore]:
    """The store. A command that only reads does not create it: if it does not exist, the command uses an empty
    temporary one.

    Raises BadInput, Unreachable, Refused.
    """
    from kafka_replication.store import connect

    exists = connect.is_there(url())
    say_store(exists, writes=writes)
    if exists or writes:
        with closing(default_store()) as store:
            yield store
        return
    with workspace() as here, closing(open_empty(here.folder)) as store:
        yield store


Result = tuple[Any, str, int]  # the document, its text, and the exit code
Action = Callable[[Run], Result]
File = Annotated[Path, typer.Argument(help="The replication's YAML file.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def act(
    file: Path,
    as_json: bool,
    action: Action,
    deadline: Deadline | None = None,
    failed: Callable[[Replication, str, ReplicationError], None] | None = None,
    *,
    writes: bool = False,
    looks: bool = False,
) -> None:
    """Load the file, act, and print. Every expected error becomes one message and an exit code.

    The default ``deadline`` is that of a run. Only an action that ``writes`` creates a store. ``failed`` is called with
    the replication, the run id and the error. An action that only ``looks`` does not wait for the end of an open
    transaction that hides the ledger.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    stopping.on_signals()
    replication: Replication | None = None
    run_id = runner.new_run_id()

    def tell(error: ReplicationError) -> None:
        if failed is not None and replication is not None:
            failed(replication, run_id, error)

    def with_file(told: Any) -> Any:
        return told if replication is None else commands.with_file(told, replication.name, str(file))

    with failures_told(as_json, tell, with_file):
        replication = load_replication(file)
        with store_of_command(writes=writes) as store:
            deadline = deadline or Deadline.after(replication.timeouts.run)
            run = open_run(replication, EnvironmentConnections(), store, run_id, deadline, looks=looks)
            document, text, code = action(run)
    typer.echo(json.dumps(with_file(json_of(document)), indent=2) if as_json else with_file(text))
    stopping.leave_if_asked()
    raise typer.Exit(code)


@contextmanager
def failures_told(
    as_json: bool = False,
    tell: Callable[[ReplicationError], None] = lambda _: None,
    shown: Callable[[Any], Any] = lambda told: told,
) -> Iterator[None]:
    """Every expected error of what is done inside becomes one message with its remedy and where to read on, on stderr,
    with ``as_json`` its document on stdout, too, and an exit code, and is given to ``tell``. Its texts are printed as
    ``shown``. What a signal made fail ends by the signal.
    """
    try:
        yield
    except ReplicationError as error:
        stopping.leave_if_asked()
        told = shown(json_of(FailureDocument.of(error)))
        if as_json:
            typer.echo(json.dumps(told))
        remedy = f"\nremedy: {told['remedy']}" if told["remedy"] else ""
        typer.echo(f"error: {told['error']}{remedy}\nsee: {told['see']}", err=True)
        tell(error)
        raise typer.Exit(error.exit_code) from None
    except Exception:
        stopping.leave_if_asked()
        raise


def notifier_findings(replication: Replication) -> Iterator[Trouble]:
    """One finding for Apprise if it is missing, and one for each notifier that cannot be used. Sends nothing."""
    if replication.alerts.apprise and importlib.util.find_spec("apprise") is None:
        yield Trouble("error", "alerts.apprise", WITHOUT_APPRISE, extras.install("apprise"))
    for notifier in notifiers.channels(replication, {}):
        try:
            notifier.made()
        except BadInput as problem:
            yield Trouble.of(problem, "alerts.notifiers")
