"""The watermark store in a database; the only package that imports SQLAlchemy, when a store is opened.

SQLite needs no driver. For PostgreSQL install a driver, ``pip install "psycopg[binary]"``, and use
``postgresql+psycopg://``. Keep an SQLite file on a local disk: its locks do not work on network file systems.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_replication.store.watermark_store import WatermarkStore


def open_store(url: str, log_level: int = logging.INFO) -> WatermarkStore:
    """Open the store at an SQLAlchemy url. Creates the folder, the file and the tables if they are missing, and logs
    that at ``log_level``.

    ``?timeout=S`` of an SQLite url sets how many seconds to wait for another process's write (default 30).
    Raises BadInput (no usable url), Unreachable (no answer, or locked), Refused (a newer version made its tables).
    """
    from kafka_replication.store.watermark_store import WatermarkStore

    return WatermarkStore(url, log_level)


def open_empty(folder: Path) -> WatermarkStore:
    """A new store in this folder, in place of one that does not exist. No one else uses it."""
    return open_store(f"sqlite:///{folder}/store.db", logging.DEBUG)


__all__ = ["WatermarkStore", "open_empty", "open_store"]
