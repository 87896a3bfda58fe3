"""The watermark stores that the conformance suite (``test_watermark_store*.py``) runs on: an SQLite file, and PostgreSQL.

The latter is the database that KAFKA_REPLICATION_TEST_STORE_URL names, such as ``postgresql+psycopg://user:password@host/database``,
or else a server of the tests' own, from a Python package. Each test works in a schema of its own and drops it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.engine import make_url

from kafka_replication.store import open_store
from kafka_replication.store.watermark_store import WatermarkStore
from stack.processes import ProcessRecord
from tests.contract.copy_case import CopyCase
from tests.support.clusters import Brokers, locked
from tests.support.postgresql import server, server_in, url_of
from tests.support.scenario import Cluster

__all__ = ["server"]

GIVEN = os.environ.get("KAFKA_REPLICATION_TEST_STORE_URL", "")


@pytest.fixture(scope="session")
def postgresql(stack_folder: Path) -> Iterator[str]:
    """The URL of a server that all processes of the session use; the last one stops it. It listens on a socket file only."""
    if GIVEN:
        yield GIVEN
        return
    with locked(stack_folder, "postgresql"):
        started = server_in(stack_folder / "postgresql", stack_folder)
    try:
        pid = started.get_pid()
        record = None if pid is None else ProcessRecord.of(pid)
        assert record is not None
        record.write(stack_folder / "postgresql-started.pid")
        with locked(stack_folder, "postgresql"):
            started.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf()")  # no test cuts the power
        yield url_of(started)
    finally:
        started.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/new folder/store.db"
    return str(request.getfixturevalue("postgresql_schema"))


@pytest.fixture
def postgresql_schema(postgresql: str) -> Iterator[str]:
    """The URL of a schema of the test's own."""
    url = postgresql
    name = f"conformance_{uuid.uuid4().hex[:12]}"
    server = create_engine(url, poolclass=NullPool)
    with server.begin() as db:
        db.execute(text(f"CREATE SCHEMA {name}"))
    yield make_url(url).update_query_dict({"options": f"-csearch_path={name}"}).render_as_string(hide_password=False)
    with server.begin() as db:
        db.execute(text(f"DROP SCHEMA {name} CASCADE"))


@pytest.fixture
def store(store_url: str) -> Iterator[WatermarkStore]:
    opened = open_store(store_url)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def kafka_sides(source_cluster: Brokers, target_cluster: Brokers) -> tuple[Cluster, Cluster]:
    return Cluster(source_cluster.bootstrap), Cluster(target_cluster.bootstrap)


@pytest.fixture
def copy_case(kafka_sides: tuple[Cluster, Cluster]) -> CopyCase:
    """A fresh topic on both sides, opened, with the record engine and Kafka's sink."""
    return CopyCase(*kafka_sides)
