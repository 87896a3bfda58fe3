"""Whether a run may write to its store is found out without writing, and said in the words with which the run would end."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, inspect, text
from sqlalchemy.engine import URL, make_url

from kafka_replication.model.errors import BadInput, NotAuthorized, Refused, ReplicationError, Unreachable
from kafka_replication.store import open_store
from kafka_replication.store.database import why_not_writable
from tests.contract.conftest import GIVEN

NOBODY = 65534


def text_of(url: URL) -> str:
    return url.render_as_string(hide_password=False)


def found(url: str) -> ReplicationError:
    error = why_not_writable(url)
    assert error is not None
    return error


def of_run(url: str) -> ReplicationError:
    """With what a run ends that opens the store, and writes to it."""
    with pytest.raises(ReplicationError) as caught:
        open_store(url).start_run("run-1", "orders-dr", "live", "{}")
    return caught.value


def assert_same(url: str, kind: type[ReplicationError]) -> None:
    """Up to the database's own words, which stand in brackets."""
    asked, tried = found(url), of_run(url)
    assert type(asked) is type(tried) is kind
    assert (asked.what.partition(" (")[0], asked.remedy) == (tried.what.partition(" (")[0], tried.remedy)


@pytest.fixture
def user(postgresql: str, postgresql_schema: str) -> Iterator[URL]:
    """The schema's URL for a user that may look at it, and nothing else."""
    if GIVEN:
        pytest.skip("the tests make no users on somebody's server")
    name, server, url = f"user_{uuid.uuid4().hex[:8]}", create_engine(postgresql, poolclass=NullPool), postgresql_schema
    schema = str(make_url(url).query["options"]).partition("=")[2]
    with server.begin() as db:
        db.execute(text(f"CREATE ROLE {name} LOGIN"))
        db.execute(text(f"GRANT USAGE ON SCHEMA {schema} TO {name}"))
    yield make_url(url).set(username=name)
    with server.begin() as db:
        db.execute(text(f"DROP OWNED BY {name}"))
        db.execute(text(f"DROP ROLE {name}"))


def test_a_store_that_can_be_written_is_fine_before_and_after_it_is_made(store_url: str) -> None:
    assert why_not_writable(store_url) is None
    if make_url(store_url).get_backend_name() == "sqlite":
        assert not Path(make_url(store_url).database or "").parent.exists(), "nothing was made"
    else:
        assert inspect(create_engine(store_url, poolclass=NullPool)).get_table_names() == []
    open_store(store_url).close()
    assert why_not_writable(store_url) is None


@pytest.mark.parametrize("made", [False, True])
def test_a_server_that_only_reads(postgresql_schema: str, made: bool) -> None:
    if made:
        open_store(postgresql_schema).close()
    url = make_url(postgresql_schema)
    options = f"{url.query['options']} -cdefault_transaction_read_only=on"
    assert_same(text_of(url.update_query_dict({"options": options})), Unreachable)


def test_a_user_that_may_not_create_tables(user: URL) -> None:
    assert_same(text_of(user), NotAuthorized)
    assert found(text_of(user)).what == of_run(text_of(user)).what


def test_a_schema_that_is_not_there(user: URL) -> None:
    url = text_of(user.update_query_dict({"options": "-csearch_path=nowhere"}))
    assert_same(url, Refused)
    assert found(url).what == of_run(url).what


def test_a_user_without_rights_on_the_tables(user: URL, postgresql_schema: str) -> None:
    open_store(postgresql_schema).close()
    schema = str(user.query["options"]).partition("=")[2]

    def grant(rights: str) -> None:
        with create_engine(postgresql_schema, poolclass=NullPool).begin() as db:
            db.execute(text(f"GRANT {rights} IN SCHEMA {schema} TO {user.username}"))

    grant("SELECT ON ALL TABLES")
    assert_same(text_of(user), NotAuthorized)
    assert "for table kafka_replication_runs: INSERT, UPDATE, DELETE" in found(text_of(user)).what
    grant("ALL ON ALL TABLES")
    assert_same(text_of(user), NotAuthorized)
    assert "for sequence" in found(text_of(user)).what
    grant("USAGE ON ALL SEQUENCES")
    assert why_not_writable(text_of(user)) is None
    open_store(text_of(user)).start_run("run-1", "orders-dr", "live", "{}")


@contextmanager
def as_nobody() -> Iterator[None]:
    """Who runs as root may write everywhere."""
    if root := os.geteuid() == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that everybody may look into."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


def test_a_folder_that_is_read_only(folder: Path) -> None:
    folder.chmod(0o555)
    with as_nobody():
        assert_same(f"sqlite:///{folder}/store.db", Unreachable)
        assert_same(f"sqlite:///{folder}/new/store.db", BadInput)
        assert found(f"sqlite:///{folder}/new/store.db").what == of_run(f"sqlite:///{folder}/new/store.db").what


def test_a_file_that_is_read_only(folder: Path) -> None:
    open_store(f"sqlite:///{folder}/store.db").close()
    (folder / "store.db").chmod(0o444)
    folder.chmod(0o777)
    with as_nobody():
        assert_same(f"sqlite:///{folder}/store.db", BadInput)
