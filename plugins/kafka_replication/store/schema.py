"""The store's tables, for SQLite and PostgreSQL.

Times are milliseconds since the epoch in BIGINT columns, as in Kafka: they are the same in both databases and have no
time zone. They always come from the database's clock, see `connect.clock`.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    select,
    text,
)
from sqlalchemy.schema import SchemaItem

from kafka_replication.model.errors import Refused
from kafka_replication.store.connect import FIRST_TABLE

log = logging.getLogger(__name__)

# Who changes a table raises it, and brings the tables of each version that was released to the new one in `create`.
SCHEMA_VERSION: Final = 3  # 2: the table of consumer groups; 3: that of certificates
_BEFORE_THE_FIRST: Final = "kafka_replication_alembic_version"  # a table that builds before the first release made
# Any number, but every version of this package must use the same one.
_ADVISORY_LOCK: Final = 4_217_061_881

metadata = MetaData()


def _table(name: str, *parts: SchemaItem) -> Table:
    return Table(name, metadata, *parts)


def _key() -> list[Column[Any]]:
    return [
        Column("replication", String, primary_key=True, nullable=False),
        Column("source_topic", String, primary_key=True, nullable=False),
        Column("source_partition", Integer, primary_key=True, nullable=False, autoincrement=False),
        Column("target_topic", String, primary_key=True, nullable=False),
    ]


schema_table = _table(FIRST_TABLE, Column("version", Integer, primary_key=True, autoincrement=False))
watermarks = _table(
    "kafka_replication_watermarks",
    *_key(),
    Column("generation", Integer, nullable=False),
    Column("source_topic_id", String, nullable=False),
    Column("target_topic_id", String, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("run_id", String, nullable=False),
)

# One row for each replication, which stays: it is locked while leases change, and its token never restarts.
replication_leases = _table(
    "kafka_replication_leases",
    Column("replication", String, primary_key=True),
    Column("token", BigInteger, nullable=False),
)

# One row for each run that has a lease, a reservation (without a holder) or a place in the queue (waiting).
leases = _table(
    "kafka_replication_target_leases",
    Column("replication", String, primary_key=True),
    Column("owner", String, primary_key=True),
    Column("holder", String),
    Column("waiting", Boolean, nullable=False),
    Column("topics", Text, nullable=False),  # JSON, see `TargetTopics.encode`
    Column("process", Text),  # JSON of a `ProcessIdentity`
    Column("acquired_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("token", BigInteger, nullable=False),
)

runs = _table(
    "kafka_replication_runs",
    Column("sequence", Integer, primary_key=True),
    Column("run_id", String, nullable=False, unique=True),
    Column("replication", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("state", String, nullable=False),
    Column("plan", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    Column("progress", Text),
    Column("expected_until", BigInteger),  # until then the run's next task may begin
    Index("kafka_replication_runs_open", "replication", "state"),
    Index("kafka_replication_runs_latest", "replication", "sequence"),
    Index("kafka_replication_runs_age", "replication", "created_at"),
)

outcomes = _table(
    "kafka_replication_range_outcomes",
    Column("run_id", String, ForeignKey(runs.c.run_id), primary_key=True),
    *_key(),
    Column("from_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("until_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("copied", BigInteger, nullable=False),
    Column("not_visible", BigInteger, nullable=False),
    Column("digest_ok", Boolean),
    Column("level", String, nullable=False),
    Column("watermark", BigInteger),
    Column("error", Text),
    Column("remedy", Text),
    Column("seconds", Float, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("recorded_at", BigInteger, nullable=False),
    Column("counted", Integer),  # by `totals`: 0 as failed, 1 as verified, too
    Index(
        "kafka_replication_range_outcomes_partition",
        "replication",
        "source_topic",
        "source_partition",
        "target_topic",
        "recorded_at",
    ),
)

# The offset of a time in a partition, resolved once: both data intervals that meet there use it.
boundaries = _table(
    "kafka_replication_boundaries",
    Column("replication", String, primary_key=True),
    Column("source_topic", String, primary_key=True),
    Column("source_partition", Integer, primary_key=True, autoincrement=False),
    Column("source_topic_id", String, primary_key=True),
    Column("time", BigInteger, primary_key=True, autoincrement=False),
    Column("next_offset", BigInteger, nullable=False),
)

# The causes of alerts that are not over. `document` holds the whole value, the other columns are for queries.
alerts = _table(
    "kafka_replication_alerts",
    Column("replication", String, primary_key=True),
    Column("kind", String, primary_key=True),
    Column("subject", String, primary_key=True),
    Column("since", BigInteger, nullable=False),
    Column("last_seen", BigInteger, nullable=False),
    Column("announced_at", BigInteger),
    Column("document", Text, nullable=False),
)

# Records that were set aside. The ledger has them, too, for as long as it keeps receipts.
failed_records = _table(
    "kafka_replication_failed_records",
    *_key(),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("source_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("state", String, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("key_digest", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("error", String, nullable=False),
    Column("place_topic", String),
    Column("place_partition", Integer),
    Column("place_offset", BigInteger),
    Column("history", Text, nullable=False),  # JSON of its steps
    Column("updated_at", BigInteger, nullable=False),  # when it was decided about; before, when it was written
    Index("kafka_replication_failed_records_state", "replication", "state"),
)

# How each replication stood when somebody looked last. The front page reads all columns but the last one.
standings = _table(
    "kafka_replication_standings",
    Column("replication", String, primary_key=True),
    Column("facts", Text, nullable=False),  # JSON of `Facts`
    Column("work", Text),  # JSON of `Work`
    Column("measured_at", BigInteger),
    Column("partition_count", Integer, nullable=False),
    Column("lag_records", BigInteger),
    Column("lag_seconds", Float),
    Column("partitions", Text),  # JSON of the rows of `status --json`, with a version
)

# Lag and copied records over time. `run_id` is empty but for the minute in which a run ended.
samples = _table(
    "kafka_replication_samples",
    Column("replication", String, primary_key=True),
    Column("span", BigInteger, primary_key=True, autoincrement=False),  # milliseconds
    Column("at", BigInteger, primary_key=True, autoincrement=False),  # the beginning of the span
    Column("run_id", String, primary_key=True),
    Column("lag_records", BigInteger),
    Column("lag_seconds", Float),
    Column("records", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),
)

# Causes that somebody was told of, and that are over.
past_alerts = _table(
    "kafka_replication_past_alerts",
    Column("replication", String, primary_key=True),
    Column("ended_at", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String, primary_key=True),
    Column("subject", String, primary_key=True),
    Column("since", BigInteger, nullable=False),
    Column("what", Text, nullable=False),
    Column("remedy", Text, nullable=False),
)

# Consumer groups as they were seen, and moved, the last time.
groups = _table(
    "kafka_replication_groups",
    Column("replication", String, primary_key=True),
    Column("group_id", String, primary_key=True),
    Column("measured_at", BigInteger, nullable=False),
    Column("document", Text, nullable=False),  # JSON of a `GroupRow`, with a version
)

# Certificates with both of their files, byte by byte.
certificates = _table(
    "kafka_replication_certificates",
    Column("replication", String, primary_key=True),
    Column("name", String, primary_key=True),  # of its files, without what they end with
    Column("made_at", BigInteger, nullable=False),
    Column("document", Text, nullable=False),  # JSON of a `CertificateRow`
    Column("json", LargeBinary, nullable=False),
    Column("html", LargeBinary, nullable=False),
)

# Sums that only grow, for metrics: the store forgets old runs.
totals = _table(
    "kafka_replication_totals",
    Column("replication", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("kind", String, primary_key=True),  # of a run; else empty
    Column("outcome", String, primary_key=True),  # of a run or a range; else empty
    Column("value", Float, nullable=False),
)


def is_current(connection: Connection) -> bool:
    """True if the tables are those of this version. Raises Refused if a newer version created or changed them, or a
    build before the first release.
    """
    tables = inspect(connection).get_table_names()
    if _BEFORE_THE_FIRST in tables:
        raise Refused(
            "the watermark store was made by a build before the first release (0.1.0)",
            "name a new store: a run fills it from the ledger (kafka-replication ledger --rebuild-store)",
        )
    if schema_table.name not in tables:
        return False
    version: int = connection.execute(select(schema_table.c.version)).scalar_one()
    if version > SCHEMA_VERSION:
        raise Refused(
            f"the watermark store has schema version {version}; this version of kafka-replication knows up to"
            f" {SCHEMA_VERSION}",
            "upgrade kafka-replication here too, or use the store of the older version",
        )
    return version == SCHEMA_VERSION


def create(connection: Connection, log_level: int = logging.INFO) -> None:
    """Create the tables inside the caller's write transaction, and log that at the level ``log_level``. A second
    process waits, and then has nothing to do.
    """
    if connection.dialect.name == "postgresql":  # SQLite's BEGIN IMMEDIATE already lets one process in at a time
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _ADVISORY_LOCK})
    if not is_current(connection):
        metadata.create_all(connection)  # each version has one more table than the one before
        connection.execute(schema_table.delete())
        connection.execute(schema_table.insert().values(version=SCHEMA_VERSION))
        log.log(log_level, "the watermark store has schema version %d now", SCHEMA_VERSION)
