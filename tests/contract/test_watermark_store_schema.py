"""The tables of a store: processes that open a new one together make them once, and one of other builds is refused."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from sqlalchemy import NullPool, create_engine, text

from kafka_replication.model.errors import Refused
from kafka_replication.store import open_store, schema
from kafka_replication.store.watermark_store import WatermarkStore


def test_a_store_of_a_build_before_the_first_release_is_refused_by_name(store: WatermarkStore, store_url: str) -> None:
    engine = create_engine(store_url, poolclass=NullPool)
    with engine.begin() as db:
        db.execute(text("CREATE TABLE kafka_replication_alembic_version (version_num VARCHAR(32) NOT NULL)"))
    with pytest.raises(Refused, match="made by a build before the first release") as caught:
        open_store(store_url)
    assert "ledger --rebuild-store" in caught.value.remedy


OPEN = """
import os, sys
from kafka_replication.store import open_store
ready, go = int(sys.argv[2]), int(sys.argv[3])
os.write(ready, b".")
os.read(go, 1)
print(len(open_store(sys.argv[1]).watermarks("orders-dr")))
"""


def test_processes_that_open_a_new_store_together_make_it_once(store_url: str) -> None:
    (ready, say), (go, gate) = os.pipe(), os.pipe()
    command = [sys.executable, "-c", OPEN, store_url, str(say), str(go)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    started = [
        subprocess.Popen(command, env=environment, pass_fds=(say, go), stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for _ in started:
        os.read(ready, 1)
    os.write(gate, b"." * len(started))
    assert [each.communicate()[0].strip() for each in started] == ["0"] * len(started)
    for end in (ready, say, go, gate):
        os.close(end)
    with create_engine(store_url, poolclass=NullPool).begin() as db:
        assert db.execute(text("SELECT version FROM kafka_replication_schema")).scalars().all() == [
            schema.SCHEMA_VERSION
        ]
