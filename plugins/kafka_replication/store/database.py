"""The database of a store: its transactions. Each call of a store is one.

Every write locks and reads its row (SQLite: BEGIN IMMEDIATE locks the file; PostgreSQL: SELECT ... FOR UPDATE),
decides, and writes. A missing row cannot be locked: if two transactions insert it at once, one of them fails,
reads the other's row and decides again.

Finds out if a run may write to its store: reads rights and writes nothing.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, inspect, text
from sqlalchemy.exc import IntegrityError, ProgrammingError

from kafka_replication.model.errors import ReplicationError
from kafka_replication.store import connect, schema
from kafka_replication.store.connect import Outage
from kafka_replication.store.error_table import row_named

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


# A standby's transactions are read-only, too.
_READ_ONLY: Final = text("SELECT current_setting('transaction_read_only') = 'on', pg_is_in_recovery()")
_SCHEMA: Final = text(
    "SELECT name, has_schema_privilege(name, 'CREATE') FROM (SELECT CAST(current_schema() AS text) AS name) AS schema"
)
_TABLES: Final = text(
    "SELECT name, string_agg(privilege, ', ') FROM unnest(CAST(:tables AS text[])) AS name,"
    " unnest(CAST(:privileges AS text[])) AS privilege WHERE NOT has_table_privilege(name, privilege)"
    " GROUP BY name ORDER BY name"
)
_PRIVILEGES: Final = ["SELECT", "INSERT", "UPDATE", "DELETE"]
_SEQUENCE: Final = text(
    "SELECT name FROM pg_get_serial_sequence(:table, :column) AS name WHERE NOT has_sequence_privilege(name, 'USAGE')"
)


def why_not_writable(store: str) -> ReplicationError | None:
    """The error that a run would raise when it writes to the store at this url; None if there is none. Only rights are
    read, and nothing is written. Raises BadInput, Unreachable.
    """
    url = connect.parse(store)
    if url.get_backend_name() == "sqlite":
        return _file(url)
    engine = connect.connect(url)

    def ask() -> ReplicationError | None:
        with connect.translate_db_errors(url), engine.connect() as db:
            return _server(url, db)

    try:
        return Outage().outlast(ask)
    finally:
        engine.dispose()


def _file(url: URL) -> ReplicationError | None:
    file = Path(url.database or "")
    if not os.path.lexists(file.parent):
        existing_folder = next(parent for parent in file.absolute().parents[1:] if os.path.lexists(parent))
        if not existing_folder.is_dir():
            return connect.no_folder(file.parent, os.strerror(errno.ENOTDIR))
        return None if _may_change(existing_folder) else connect.no_folder(file.parent, os.strerror(errno.EACCES))
    writable, row, said = _may_change(file.parent), "sqlite-no-file", "no right to write the folder"
    if os.path.lexists(file):
        writable = writable and os.access(file, os.R_OK | os.W_OK, effective_ids=True)
        row, said = "sqlite-read-only", "no right to write the file and its folder"
    return None if writable else connect.error_of(row_named(row), said, url)


def _may_change(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)


def _server(url: URL, db: Connection) -> ReplicationError | None:
    read_only, standby = db.execute(_READ_ONLY).one()
    if read_only:
        said = "it is a standby" if standby else "its transactions are read-only by default"
        return connect.error_of(row_named("store-read-only"), said, url)
    if connect.FIRST_TABLE not in inspect(db).get_table_names():
        name, may_create = db.execute(_SCHEMA).one()
        if name is None:
            return connect.refused_schema("no schema has been selected to create in", url)
        said = f"permission denied for schema {name}"
        return None if may_create else connect.error_of(row_named("store-rights"), said, url)
    tables = [table.name for table in schema.metadata.sorted_tables if table is not schema.schema_table]
    denied = db.execute(_TABLES, {"tables": tables, "privileges": _PRIVILEGES}).all()
    said = "; ".join(f"permission denied for table {name}: {privileges}" for name, privileges in denied)
    sequence = db.execute(_SEQUENCE, {"table": schema.runs.name, "column": schema.runs.c.sequence.name}).scalar()
    said = said or (f"permission denied for sequence {sequence}" if sequence else "")
    return connect.error_of(row_named("store-rights"), said, url) if said else None
