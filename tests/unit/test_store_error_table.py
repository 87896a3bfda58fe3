"""What a database's error means for the store, row by row."""

from __future__ import annotations

import pytest

from kafka_replication.store.error_table import OTHER, TABLE, row_of


class Said(Exception):
    """A driver's error, with SQLite's name or PostgreSQL's code."""

    def __init__(self, words: str = "", name: str | None = None, code: str | None = None) -> None:
        super().__init__(words)
        self.sqlite_errorname, self.sqlstate = name, code


# As sqlite3 of Python 3.11 and psycopg 3 say it.
SAID = {
    "sqlite-no-database": Said("file is not a database", "SQLITE_NOTADB"),
    "sqlite-damaged": Said("database disk image is malformed", "SQLITE_CORRUPT"),
    "sqlite-read-only": Said("attempt to write a readonly database", "SQLITE_READONLY_DIRECTORY"),
    "sqlite-no-file": Said("unable to open database file", "SQLITE_CANTOPEN"),
    "sqlite-locked": Said("database is locked", "SQLITE_BUSY_RECOVERY"),
    "sqlite-deleted": Said("no such table: kafka_replication_runs", "SQLITE_ERROR"),
    "store-full": Said("could not extend file", code="53100"),
    "store-login": Said('connection failed: FATAL:  password authentication failed for user "airflow"'),
    "store-rights": Said("permission denied for schema public", code="42501"),
    "store-read-only": Said("cannot execute INSERT in a read-only transaction", code="25006"),
    "store-no-database": Said('connection failed: FATAL:  database "replications" does not exist'),
    "store-name": Said("failed to resolve host 'db.invalid': [Errno -2] Name or service not known"),
}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_each_row_knows_its_error(row: object) -> None:
    name = getattr(row, "name", "")
    assert row_of(SAID[name], passing=False) == row
    assert row_of(SAID[name], passing=True) == row


def test_what_is_not_in_the_table_may_pass_or_is_no_failure_of_the_store() -> None:
    assert row_of(Said("the connection was lost", code="08006"), passing=True) is OTHER
    assert row_of(Said("syntax error", code="42601"), passing=False) is None


def test_only_what_may_pass_is_retried() -> None:
    assert {row.name for row in (*TABLE, OTHER) if row.kind.retriable} == {
        "sqlite-locked",
        "sqlite-no-file",
        "sqlite-deleted",
        "store-full",
        "store-name",
        "store-read-only",
        "store-unreachable",
    }
