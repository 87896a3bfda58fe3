"""Which watermark store a command uses, said in its first line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

import typer

from kafka_replication.connections.environment import STORE_URL
from kafka_replication.planning.findings import Finding
from kafka_replication.spark.workspace import workspace
from kafka_replication.store import is_there, open_empty, open_store, shown, why_not_writable
from kafka_replication.watermarks.store import WatermarkStore

DEFAULT_STORE = "sqlite:///.state/store.db"


def url() -> str:
    return os.environ.get(STORE_URL) or DEFAULT_STORE


def default_store() -> WatermarkStore:
    """Makes it if it is not there."""
    return open_store(url())


def say_store(found: bool = True, *, writes: bool = True) -> None:
    """Say on stderr which store it is. Another store than that of the DAGs knows nothing of their runs. Raises
    BadInput.
    """
    notes = [] if os.environ.get(STORE_URL) else [f"the default: {STORE_URL} is not set"]
    notes += [] if found else ["new" if writes else "not there: no run is known, and none is made"]
    typer.echo(f"store: {shown(url())}" + (f" ({'; '.join(notes)})" if notes else ""), err=True)


def findings() -> list[Finding]:
    """Why a run could not write to the store. Raises BadInput, Unreachable."""
    error = why_not_writable(url())
    return [Finding("error", "store", error.what, error.remedy)] if error else []


@contextmanager
def store_of_command(*, writes: bool) -> Iterator[WatermarkStore]:
    """The store. A command that only reads makes none: where there is none, it gets an empty one for its own time.

    Raises BadInput, Unreachable, Refused.
    """
    found = is_there(url())
    say_store(found, writes=writes)
    if found or writes:
        with closing(default_store()) as store:
            yield store
        return
    with workspace() as here, closing(open_empty(here.folder)) as store:
        yield store
