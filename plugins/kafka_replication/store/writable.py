"""Finds out if a run may write to its store: reads rights and writes nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from sqlalchemy import URL, Connection, inspect, text

from kafka_replication.model.errors import ReplicationError
from kafka_replication.store import connect, schema
from kafka_replication.store.error_table import row_named
from kafka_replication.store.waiting import Outage

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


def why_not(url: URL) -> ReplicationError | None:
    """The error that a run would raise when it writes to this store, or None. Raises BadInput, Unreachable."""
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
