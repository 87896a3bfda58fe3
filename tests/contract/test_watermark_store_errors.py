"""What a person is told when a watermark store cannot be opened or used; no message may show a password."""

from __future__ import annotations

import multiprocessing
import sqlite3
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import OperationalError

from kafka_replication.model.errors import (
    BadInput,
    NotAuthenticated,
    NotAuthorized,
    Refused,
    ReplicationError,
    Unreachable,
)
from kafka_replication.store import connect, open_store
from kafka_replication.store.schema import SCHEMA_VERSION
from kafka_replication.store.watermark_store import WatermarkStore
from tests.contract.conftest import GIVEN
from tests.support.waiting import wait_until

SECRET = "s3cr-t"


def failure(url: str) -> ReplicationError:
    with pytest.raises(ReplicationError) as caught:
        open_store(url)
    assert SECRET not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None, (
        "a traceback must not show the driver's own words"
    )
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "not an SQLAlchemy url"),
        (f"store {SECRET}", "not an SQLAlchemy url"),
        (f"nosuch+driver://user:{SECRET}@host/db", "of a known database"),
        (f"postgresql://user:{SECRET}@host:port/db", "not an SQLAlchemy url"),
        (f"mysql://user:{SECRET}@host/db", "mysql is not supported"),
        (f"postgresql+psycopg://user:pass@{SECRET}@host/db", "more than one @"),
        (f"postgresql+asyncpg://user:{SECRET}@host/db", "asynchronous"),
        ("sqlite+aiosqlite:////tmp/store.db", "asynchronous"),
        ("sqlite://", "must outlive the process"),
        ("sqlite:///:memory:", "must outlive the process"),
        ("sqlite:////dev/null/folder/store.db", "/dev/null/folder cannot be made"),
    ],
)
def test_a_url_that_cannot_work_is_bad_input(url: str, said: str) -> None:
    error = failure(url)
    assert isinstance(error, BadInput)
    assert said in error.what


def test_a_missing_driver_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as if it were not installed
    error = failure(f"postgresql+psycopg://user:{SECRET}@127.0.0.1:1/driverless")
    assert isinstance(error, BadInput)
    assert 'pip install "psycopg[binary]"' in error.remedy


def test_a_file_that_is_deleted_while_it_is_used_is_said(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    for file in tmp_path.glob("store.db*"):
        file.unlink()
    with pytest.raises(Unreachable, match="its file was deleted or replaced while it was in use") as caught:
        store.watermarks("orders-dr")
    assert "a new store is filled from the ledger" in caught.value.remedy
    store.close()


def test_a_backup_that_is_put_in_its_place_is_used_at_once(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store = open_store(f"sqlite:///{file}")
    store.start_run("run-1", "orders-dr", "live", "{}")
    backup = file.read_bytes()
    store.start_run("run-2", "orders-dr", "live", "{}")
    file.unlink()
    file.write_bytes(backup)
    assert [run.run_id for run in store.runs("orders-dr")] == ["run-1"]
    store.close()


def test_a_forked_process_has_connections_of_its_own(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    store.start_run("before", "orders-dr", "live", "{}")
    child = multiprocessing.get_context("fork").Process(
        target=store.start_run, args=("forked", "orders-dr", "live", "{}")
    )
    child.start()
    child.join()
    store.start_run("after", "orders-dr", "live", "{}")
    assert {run.run_id for run in store.runs("orders-dr")} == {"before", "forked", "after"}
    store.close()


@pytest.mark.parametrize(
    "url",
    [f"postgresql+psycopg://user:{SECRET}@127.0.0.1:1/db", f"postgresql+psycopg://127.0.0.1:1/db?password={SECRET}"],
)
def test_a_server_that_does_not_answer_is_unreachable(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "PATIENCE", 0.0)
    error = failure(url)
    assert isinstance(error, Unreachable)
    assert error.retriable
    assert "postgresql://127.0.0.1:1/db does not answer" in error.what


@pytest.mark.parametrize("url", [f"postgresql://user:{SECRET}@host/db", f"postgresql://host/db?password={SECRET}"])
def test_a_password_in_the_drivers_own_words_is_not_repeated(url: str) -> None:
    with (
        pytest.raises(Unreachable, match=r"postgresql://host/db .*connection with \*\*\* failed") as caught,
        connect.translate_db_errors(make_url(url)),
    ):
        raise OperationalError("SELECT 1", None, Exception(f"connection with {SECRET} failed"))
    assert caught.value.__suppress_context__, "a traceback must not show the driver's own words"


def test_a_password_that_is_a_part_of_words_leaves_them_as_they_are() -> None:
    said = "permission denied for n, as user:n@host and password='n' say"
    with pytest.raises(NotAuthorized) as caught, connect.translate_db_errors(make_url("postgresql://user:n@host/db")):
        raise OperationalError("SELECT 1", None, Exception(said))
    assert "(permission denied for n, as user:***@host and password='***' say)" in caught.value.what


@pytest.fixture
def guest(postgresql: str) -> Iterator[URL]:
    """The server's URL for a user that has to give a password, which is not the secret."""
    if GIVEN:
        pytest.skip("the tests change nobody's login rules")
    name, server = f"guest_{uuid.uuid4().hex[:8]}", create_engine(postgresql, poolclass=NullPool)
    with server.begin() as db:
        rules = Path(db.execute(text("SHOW hba_file")).scalar_one())
        db.execute(text(f"CREATE ROLE {name} LOGIN PASSWORD 'right'"))
        before = rules.read_text()
        rules.write_text(f"local all {name} scram-sha-256\n{before}")
        db.execute(text("SELECT pg_reload_conf()"))
    yield make_url(postgresql).set(username=name)
    rules.write_text(before)
    with server.begin() as db:
        db.execute(text(f"DROP ROLE {name}"))
        db.execute(text("SELECT pg_reload_conf()"))


def test_a_wrong_password_is_named(guest: URL) -> None:
    """The server takes new rules a moment after it was told: until then it asks for no password."""

    def refused() -> bool:
        try:
            create_engine(guest.set(password=SECRET), poolclass=NullPool).connect().close()
        except OperationalError:
            return True
        return False

    wait_until(refused)
    error = failure(guest.set(password=SECRET).render_as_string(hide_password=False))
    assert isinstance(error, NotAuthenticated) and not error.retriable
    assert "refuses the login" in error.what and "the password in the store's url" in error.remedy


def test_a_folder_in_place_of_the_file_is_unreachable(tmp_path: Path) -> None:
    error = failure(f"sqlite:///{tmp_path}")
    assert isinstance(error, Unreachable)
    assert "unable to open database file" in error.what


def test_a_file_that_is_no_database_is_bad_input(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    file.write_text("replication: orders-dr\n" * 100)
    error = failure(f"sqlite:///{file}")
    assert isinstance(error, BadInput)
    assert f"{file} is not an SQLite database" in error.what


def test_a_locked_file_is_unreachable_after_the_stated_wait_and_readable_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store = open_store(f"sqlite:///{file}?timeout=0.2")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unreachable, match=r"store\.db is locked"):
        store.start_run("run-1", "orders-dr", "live", "{}")
    assert open_store(f"sqlite:///{file}?timeout=0.2").run("run-1") is None
    other.close()
    assert store.start_run("run-1", "orders-dr", "live", "{}").state == "planned"


def written_elsewhere(file: Path) -> sqlite3.Connection:
    """A file that no store has opened yet, inside somebody's write transaction."""
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE theirs (anything)")
    other.execute("BEGIN IMMEDIATE")
    return other


def test_a_new_file_that_another_process_is_writing_is_waited_for(tmp_path: Path) -> None:
    other = written_elsewhere(tmp_path / "store.db")
    threading.Timer(0.3, other.rollback).start()
    assert open_store(f"sqlite:///{tmp_path}/store.db").watermarks("orders-dr") == {}
    other.close()


def test_a_new_file_that_stays_locked_is_unreachable_after_the_stated_wait(tmp_path: Path) -> None:
    other = written_elsewhere(tmp_path / "store.db")
    error = failure(f"sqlite:///{tmp_path}/store.db?timeout=0.2")
    assert isinstance(error, Unreachable)
    assert "store.db is locked" in error.what
    other.close()


def test_a_store_made_by_a_newer_version_is_refused_and_left_alone(store: WatermarkStore, store_url: str) -> None:
    engine = create_engine(make_url(store_url), poolclass=NullPool)
    with engine.begin() as db:
        db.execute(text(f"UPDATE kafka_replication_schema SET version = {SCHEMA_VERSION + 1}"))
    error = failure(store_url)
    assert isinstance(error, Refused)
    assert (
        f"has schema version {SCHEMA_VERSION + 1}; this version of kafka-replication knows up to {SCHEMA_VERSION}"
        in error.what
    )
    with engine.begin() as db:
        assert db.execute(text("SELECT version FROM kafka_replication_schema")).scalars().all() == [SCHEMA_VERSION + 1]


def test_the_store_prints_itself_without_secrets(store: WatermarkStore, store_url: str) -> None:
    assert str(make_url(store_url).database) in repr(store)
    assert (make_url(store_url).password or SECRET) not in repr(store)
