"""Stores that an earlier version made: `tests/golden/store` holds one of each schema, as the databases dumped it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.engine import make_url

from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.times import EPOCH
from kafka_replication.planning import plan_codec
from kafka_replication.store import migrations, open_store, schema
from kafka_replication.watermarks.sight import Lag, Total
from kafka_replication.watermarks.store import WatermarkStore
from tests.support import watermarks
from tests.support.leases import acquire

GOLDEN = Path(__file__).parents[1] / "golden" / "store"
NAME = "orders-dr"
DONE, FAILED, PLANNED = (
    f"airflow-orders-dr-scheduled__2026-11-22T06:{minute}:00+00:00" for minute in ("00", "15", "30")
)
KEYS = [PartitionKey(NAME, TopicPartition("orders", partition), "dr.orders") for partition in range(3)]
BACKFILLED = PartitionKey(NAME, TopicPartition("orders", 0), "restored.orders")


@contextmanager
def database(url: str) -> Iterator[Connection]:
    if make_url(url).get_backend_name() == "sqlite":
        Path(make_url(url).database or "").parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as db:
        yield db
    engine.dispose()


def rows(db: Connection, table: str, *columns: str) -> list[Any]:
    return [tuple(row) for row in db.execute(text(f"SELECT {', '.join(columns)} FROM kafka_replication_{table}"))]


@pytest.fixture
def golden_store(store_url: str) -> str:
    """The url of a store as the first release leaves it."""
    return made_of(6, store_url)


def made_of(version: int, store_url: str) -> str:
    """The url of a store as this version of the schema leaves it."""
    with database(store_url) as db:
        script = (GOLDEN / f"schema_{version}.{db.dialect.name}.sql").read_text()
        if db.dialect.name == "sqlite":
            db.connection.driver_connection.executescript(script)  # type: ignore[union-attr]
        else:
            db.exec_driver_sql(script)
    return store_url


def test_a_store_of_the_first_schema_keeps_everything(golden_store: str) -> None:
    store = open_store(golden_store)
    marks = store.watermarks(NAME)
    assert {key: (mark.generation, mark.offset, mark.version) for key, mark in marks.items()} == {
        KEYS[0]: (1, 300, 2),
        KEYS[1]: (2, 5, 2),
        BACKFILLED: (1, 2**62, 1),
    }
    assert [(mark.offset, mark.version, mark.run_id) for mark in store.history(KEYS[0])] == [
        (120, 1, DONE),
        (300, 2, FAILED),
    ]
    assert [(run.run_id, run.kind, run.state) for run in store.runs(NAME)] == [
        (PLANNED, "live", "planned"),
        ("cli-backfill-1", "backfill", "nothing_to_do"),
        (FAILED, "live", "failed"),
        (DONE, "live", "done"),
    ]
    assert [(each.key, each.range, each.copied, each.digest_ok) for each in store.outcomes(DONE)] == [
        (KEYS[0], OffsetRange(0, 120), 118, True),
        (KEYS[1], OffsetRange(5, 40), 35, True),
    ]
    assert store.outcomes(FAILED)[1].remedy == "approve the gap"
    newest = store.newest_boundary(NAME)
    assert newest is not None
    assert f"{newest:%H:%M}" == "06:15"


def test_a_store_of_the_seventh_schema_keeps_what_was_seen(store_url: str) -> None:
    store = open_store(made_of(7, store_url))
    [seen] = store.front([NAME])
    assert seen.standing.facts is not None
    assert (seen.standing.facts.source, seen.standing.facts.schedule) == ("kafka_source", "*/15 * * * *")
    assert (seen.standing.lag, seen.standing.partitions) == (Lag(180, 12.5), 1)
    assert seen.standing.work is not None
    assert (seen.standing.work.run_id, seen.standing.work.records) == (DONE, 153)
    assert store.standing_partitions(NAME) == [], "rows without a version are not read: the next look writes them"
    assert sum(sample.records for sample in store.samples(NAME, EPOCH)) == 153
    assert [(past.kind, past.what) for past in store.past_alerts(NAME, 9)] == [("lag", "it is far behind")]


def test_a_store_of_the_eighth_schema_keeps_its_sums(store_url: str) -> None:
    store = open_store(made_of(8, store_url))
    assert store.totals() == {
        NAME: {
            Total("records"): 153.0,
            Total("bytes"): 15_300.0,
            Total("throttled_seconds"): 0.25,
            Total("runs", "live", "done"): 1.0,
            Total("ranges", outcome="verified"): 2.0,
        }
    }


def test_a_run_that_the_old_version_planned_goes_on(golden_store: str) -> None:
    store = open_store(golden_store)
    run = store.run(PLANNED)
    assert run is not None
    made = plan_codec.decode(run.plan, PLANNED)
    assert [(each.key, each.copy, each.verify.encode()) for each in made.partitions[:2]] == [
        (KEYS[0], OffsetRange(300, 480), [[280, 300]]),
        (KEYS[2], OffsetRange(10, 20), []),
    ]
    lease = acquire(store, NAME, PLANNED, "copy", 60)  # the old version took it for the run, whatever its tasks
    assert lease.token == 2
    ids = made.partitions[0].ids
    names = {"source_topic_id": ids.source_topic, "target_topic_id": ids.target_topic}
    moved = watermarks.advance(store, KEYS[0], 480, 2, run_id=PLANNED, **names)
    assert (moved.offset, moved.version) == (480, 3)
    assert store.finish_run(PLANNED, "done").state == "done"
    store.release_lease(lease)
    assert store.start_run("next", NAME, "live", "{}").state == "planned"
    assert [each.run_id for each in store.runs(NAME, 2)] == ["next", PLANNED]


@pytest.mark.parametrize("table", ["schema SET version = 5", "alembic_version SET version_num = '0005'"])
def test_a_store_of_a_build_before_the_first_release_is_refused_by_name(golden_store: str, table: str) -> None:
    with database(golden_store) as db:
        db.execute(text(f"UPDATE kafka_replication_{table}"))
    with pytest.raises(Refused, match="has schema version 5, which only builds before the first release made"):
        open_store(golden_store)


def test_the_tables_are_the_same_however_they_came_about(golden_store: str) -> None:
    open_store(golden_store)
    with database(golden_store) as db:
        options = {"version_table": schema.ALEMBIC_TABLE, "compare_type": True}
        context = MigrationContext.configure(db, opts=options)
        assert compare_metadata(context, schema.metadata) == []
        assert context.get_current_revision() == f"{schema.SCHEMA_VERSION:04}"


def test_a_new_store_is_the_newest_revision(store: WatermarkStore, store_url: str) -> None:
    script = ScriptDirectory(Path(migrations.__file__).parent)
    assert script.get_heads() == [f"{schema.SCHEMA_VERSION:04}"]
    with database(store_url) as db:
        assert rows(db, "alembic_version", "version_num") == [(f"{schema.SCHEMA_VERSION:04}",)]
        assert rows(db, "schema", "version") == [(schema.SCHEMA_VERSION,)]
        context = MigrationContext.configure(db, opts={"version_table": schema.ALEMBIC_TABLE, "compare_type": True})
        assert compare_metadata(context, schema.metadata) == []


@pytest.mark.parametrize("table", ["schema SET version = 9", "alembic_version SET version_num = '0009'"])
def test_a_store_of_a_newer_version_is_refused_by_either_number(
    store: WatermarkStore, store_url: str, table: str
) -> None:
    with database(store_url) as db:
        db.execute(text(f"UPDATE kafka_replication_{table}"))
    with pytest.raises(Refused, match="has schema version 9; this version of kafka-replication knows up to"):
        open_store(store_url)


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
    with database(store_url) as db:
        assert rows(db, "alembic_version", "version_num") == [(f"{schema.SCHEMA_VERSION:04}",)]
