"""Opens the watermark store of a command, and names it in the command's first line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import typer

from kafka_replication.connections.environment import STORE_URL
from kafka_replication.planning.findings import Finding
from kafka_replication.spark.host.workspace import workspace
from kafka_replication.store import is_there, open_empty, open_store, shown, why_not_writable

if TYPE_CHECKING:
    from kafka_replication.store import WatermarkStore

DEFAULT_STORE = "sqlite:///.state/store.db"


def url() -> str:
    return os.environ.get(STORE_URL) or DEFAULT_STORE


def default_store() -> WatermarkStore:
    """The store that the settings name. Creates it if it does not exist."""
    return open_store(url())


def say_store(exists: bool = True, *, writes: bool = True) -> None:
    """Print on stderr which store is used: another one than that of the DAGs lacks their runs. Raises BadInput."""
    notes = [] if os.environ.get(STORE_URL) else [f"the default: {STORE_URL} is not set"]
    notes += [] if exists else ["new" if writes else "not there: no run is known, and none is made"]
    typer.echo(f"store: {shown(url())}" + (f" ({'; '.join(notes)})" if notes else ""), err=True)


def findings() -> list[Finding]:
    """The reasons why a run could not write to the store. Raises BadInput, Unreachable."""
    error = why_not_writable(url())
    return [Finding("error", "store", error.what, error.remedy)] if error else []


@contextmanager
def store_of_command(*, writes: bool) -> Iterator[WatermarkStore]:
    """The store. A command that only reads does not create it: if it does not exist, the command uses an empty
    temporary one.

    Raises BadInput, Unreachable, Refused.
    """
    exists = is_there(url())
    say_store(exists, writes=writes)
    if exists or writes:
        with closing(default_store()) as store:
            yield store
        return
    with workspace() as here, closing(open_empty(here.folder)) as store:
        yield store
