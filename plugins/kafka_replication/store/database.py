"""The database of a store: its transactions. Each call of a store is one.

Every write locks and reads its row (SQLite: BEGIN IMMEDIATE locks the file; PostgreSQL: SELECT ... FOR UPDATE),
decides, and writes. A missing row cannot be locked: if two transactions insert it at once, one of them fails,
reads the other's row and decides again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError, ProgrammingError

from kafka_replication.store import connect, schema
from kafka_replication.store.waiting import Outage

T = TypeVar("T")
P = ParamSpec("P")
D = TypeVar("D", bound="Database")


class Database:
    """The database at an SQLAlchemy url. Every method of a store may raise `Unreachable`, may be called from any
    thread or process, and may be repeated after an unknown outcome without doing its work twice.

    Holds no connection between calls, so it is safe in threads and across forks.
    """

    def __init__(self, url: str, log_level: int = logging.INFO) -> None:
        """``log_level`` is the level at which it logs that it created or changed the tables."""
        self._url, self._log_level = connect.parse(url), log_level
        self._reader = connect.connect(self._url)
        # The same connections, but transactions take SQLite's write lock at once: a later wait would have no limit.
        self._writer = self._reader.execution_options(sqlite_begin="BEGIN IMMEDIATE")
        self._outage = Outage()
        # A file that cannot be opened at the beginning is no outage: nothing restarts it.
        self._open() if self._url.get_backend_name() == "sqlite" else self._outage.outlast(self._open)

    def __repr__(self) -> str:
        return f"<{connect.describe(self._url)}>"

    def close(self) -> None:
        self._reader.dispose()

    def _read(self, read: Callable[[Connection], T]) -> T:
        return self._outage.outlast(lambda: self._read_once(read))

    def _read_once(self, read: Callable[[Connection], T]) -> T:
        with connect.translate_db_errors(self._url), self._reader.begin() as db:
            return read(db)

    def _write(self, write: Callable[[Connection], T]) -> T:
        """Run ``write`` in a transaction. Repeat it if another transaction inserted the same row first, or if the store
        was away, even if the result of the commit is unknown.
        """

        def write_first() -> T:
            for _ in range(2):
                try:
                    return self._write_once(write)
                except IntegrityError:
                    continue
            return self._write_once(write)

        return self._outage.outlast(write_first)

    def _write_once(self, write: Callable[[Connection], T]) -> T:
        with connect.translate_db_errors(self._url), self._writer.begin() as db:
            connect.limit_waits(db)
            return write(db)

    def _open(self) -> None:
        with connect.translate_db_errors(self._url):
            connect.use_wal(self._reader)
            if self._read_once(schema.is_current):
                return
            try:
                self._write_once(lambda db: schema.create(db, self._log_level))
            except ProgrammingError as problem:
                raise connect.refused_schema(connect.scrubbed(problem.orig, self._url), self._url) from None


def reads(method: Callable[Concatenate[D, Connection, P], T]) -> Callable[Concatenate[D, P], T]:
    """A method whose body is one transaction that reads; the caller does not give the connection."""

    @wraps(method)
    def read(self: D, /, *args: P.args, **named: P.kwargs) -> T:
        return self._read(lambda db: method(self, db, *args, **named))

    return read


def writes(method: Callable[Concatenate[D, Connection, P], T]) -> Callable[Concatenate[D, P], T]:
    """A method whose body is one transaction that writes, and that may be repeated."""

    @wraps(method)
    def write(self: D, /, *args: P.args, **named: P.kwargs) -> T:
        return self._write(lambda db: method(self, db, *args, **named))

    return write
