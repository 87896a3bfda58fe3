"""The watermark stores that the conformance suite (``test_watermark_store*.py``) runs on.

Always an SQLite file; also the database that KAFKA_REPLICATION_TEST_STORE_URL names, such as
``postgresql+psycopg://user:password@host/database``. There each test works in a schema of its own and drops it.
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
from kafka_replication.watermarks import WatermarkStore

SERVER = os.environ.get("KAFKA_REPLICATION_TEST_STORE_URL", "")


def schema_of_its_own() -> Iterator[str]:
    name = f"conformance_{uuid.uuid4().hex[:12]}"
    server = create_engine(SERVER, poolclass=NullPool)
    with server.begin() as db:
        db.execute(text(f"CREATE SCHEMA {name}"))
    yield make_url(SERVER).update_query_dict({"options": f"-csearch_path={name}"}).render_as_string(hide_password=False)
    with server.begin() as db:
        db.execute(text(f"DROP SCHEMA {name} CASCADE"))


@pytest.fixture(params=["sqlite", "postgresql"] if SERVER else ["sqlite"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/new folder/store.db"
    else:
        yield from schema_of_its_own()


@pytest.fixture
def store(store_url: str) -> Iterator[WatermarkStore]:
    opened = open_store(store_url)
    yield opened
    opened.close()
