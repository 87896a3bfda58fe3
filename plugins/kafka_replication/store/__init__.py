"""The watermark store in a database; the only package that imports SQLAlchemy.

SQLite needs no driver. For PostgreSQL install a driver, ``pip install "psycopg[binary]"``, and use
``postgresql+psycopg://``. Keep an SQLite file on a local disk: its locks do not work on network file systems.
"""

import logging
from pathlib import Path

from kafka_replication.model.errors import ReplicationError
from kafka_replication.store import connect, writable
from kafka_replication.store.sql import SqlStore
from kafka_replication.watermarks.store import WatermarkStore


def open_store(url: str) -> WatermarkStore:
    """Open the store at an SQLAlchemy url. Creates the folder, the file and the tables if they are missing.

    ``?timeout=S`` of an SQLite url sets how many seconds to wait for another process's write (default 30).
    Raises BadInput (no usable url), Unreachable (no answer, or locked), Refused (a newer version made its tables).
    """
    return SqlStore(url)


def open_empty(folder: Path) -> WatermarkStore:
    """A new store in this folder that nobody needs to know of: it stands for one that is not there."""
    return SqlStore(f"sqlite:///{folder}/store.db", logging.DEBUG)


def is_there(url: str) -> bool:
    """Whether a store was made at this url. Makes nothing. Raises BadInput, Unreachable."""
    return connect.is_there(connect.parse(url))


def why_not_writable(url: str) -> ReplicationError | None:
    """The error with which a run would end that writes to this store, or None: its rights are asked, nothing is
    written. Raises BadInput, Unreachable.
    """
    return writable.why_not(connect.parse(url))


def shown(url: str) -> str:
    """The url as it may be shown, without its secrets. Raises BadInput."""
    return connect.shown(connect.parse(url))


__all__ = ["is_there", "open_empty", "open_store", "shown", "why_not_writable"]
