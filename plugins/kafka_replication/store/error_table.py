"""Maps a database's errors to the errors of the watermark store.

SQLite's errors have names (https://www.sqlite.org/rescode.html), PostgreSQL's have codes (appendix A). psycopg gives
no code if the connection itself fails, so its words count there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kafka_replication.model.errors import (
    BadInput,
    NotAuthenticated,
    NotAuthorized,
    NotResolved,
    Refused,
    ReplicationError,
    Unreachable,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of failure. ``pattern`` is searched in SQLite's name, PostgreSQL's code and the driver's words."""

    name: str  # its anchor in docs/errors.md
    pattern: str
    kind: type[ReplicationError]
    what: str  # follows the name of the store
    remedy: str
    outage: bool = False  # the store waits for the end of it


OTHER = Row(
    name="store-unreachable",
    pattern="",
    kind=Unreachable,
    what="does not answer or failed",
    remedy="make the database reachable from this host, then run again",
    outage=True,
)
TABLE = (
    Row(
        name="sqlite-no-database",
        pattern="^SQLITE_NOTADB",
        kind=BadInput,
        what="is not an SQLite database",
        remedy="name another file in the store url",
    ),
    Row(
        name="sqlite-damaged",
        pattern="^SQLITE_CORRUPT",
        kind=Refused,
        what="is damaged",
        remedy="move it away, then rebuild the watermarks from the ledger",
    ),
    Row(
        name="sqlite-read-only",
        pattern="^SQLITE_READONLY",
        kind=BadInput,
        what="is read-only",
        remedy="give this user the right to write the file and its folder",
    ),
    Row(
        name="sqlite-no-file",
        pattern="^SQLITE_CANTOPEN",
        kind=Unreachable,
        what="cannot be opened",
        remedy="give this user the right to read and write the file and its folder; it must not be a folder itself",
        outage=True,
    ),
    Row(
        name="sqlite-locked",
        pattern="^SQLITE_(BUSY|LOCKED)",
        kind=Unreachable,
        what="is locked",
        remedy="run again; if it stays locked, find the process that keeps a write transaction open",
    ),
    Row(
        name="sqlite-deleted",
        pattern="no such table",
        kind=Unreachable,
        what="has lost its tables: its file was deleted or replaced while it was in use",
        remedy="put it back; or run again: a new store is filled from the ledger",
    ),
    Row(
        name="store-full",
        pattern="^SQLITE_FULL|\\b53100\\b",
        kind=Unreachable,
        what="has no room left",
        remedy="make room on the database's disk, then run again",
    ),
    Row(
        name="store-login",
        pattern='\\b28P01\\b|\\b28000\\b|password authentication failed|no password supplied|role ".*" does not exist',
        kind=NotAuthenticated,
        what="refuses the login",
        remedy="correct the user and the password in the store's url",
    ),
    Row(
        name="store-rights",
        pattern="\\b42501\\b|permission denied for",
        kind=NotAuthorized,
        what="does not allow this user to do that",
        remedy="grant this user CREATE and USAGE on the database's schema, and all rights on its tables",
    ),
    Row(
        name="store-read-only",
        pattern="\\b25006\\b|in a read-only transaction",
        kind=Unreachable,
        what="is read-only",
        remedy="name the server that takes writes in the store's url: this one is a standby, or was made read-only",
    ),
    Row(
        name="store-no-database",
        pattern='\\b3D000\\b|database ".*" does not exist',
        kind=BadInput,
        what="does not exist on that server",
        remedy="create the database, or name another in the store's url",
    ),
    Row(
        name="store-name",
        pattern="could not translate host name|failed to resolve host|name or service not known",
        kind=NotResolved,
        what="is on a host whose name is not known",
        remedy="correct the host in the store's url, or the name service of this machine",
        outage=True,
    ),
)


def row_named(name: str) -> Row:
    return next(row for row in TABLE if row.name == name)


def row_of(problem: BaseException | None, *, passing: bool) -> Row | None:
    """The row of a driver's error; None if the store did not fail. ``passing``: a retry can help with its type."""
    said = " ".join(
        (str(getattr(problem, "sqlite_errorname", "") or ""), str(getattr(problem, "sqlstate", "") or ""), str(problem))
    )
    row = next((row for row in TABLE if re.search(row.pattern, said.strip(), re.IGNORECASE)), None)
    return row or (OTHER if passing else None)
