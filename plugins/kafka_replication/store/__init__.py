"""The watermark store in a database; the only package that imports SQLAlchemy.

SQLite needs no driver. For PostgreSQL install a driver, ``pip install "psycopg[binary]"``, and use
``postgresql+psycopg://``. Keep an SQLite file on a local disk: its locks do not work on network file systems.
"""

from kafka_replication.store import connect
from kafka_replication.store.sql import SqlStore
from kafka_replication.watermarks.store import WatermarkStore


def open_store(url: str) -> WatermarkStore:
    """Open the store at an SQLAlchemy url. Creates the folder, the file and the tables if they are missing.

    ``?timeout=S`` of an SQLite url sets how many seconds to wait for another process's write (default 30).
    Raises BadInput (no usable url), Unreachable (no answer, or locked), Refused (a newer version made its tables).
    """
    return SqlStore(url)


def is_there(url: str) -> bool:
    """Whether a store was made at this url. Makes nothing. Raises BadInput, Unreachable."""
    return connect.is_there(connect.parse(url))


def shown(url: str) -> str:
    """The url as it may be shown, without its secrets. Raises BadInput."""
    return connect.shown(connect.parse(url))


__all__ = ["is_there", "open_store", "shown"]
