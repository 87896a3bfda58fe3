"""The first schema. Version 1 of this package created it without Alembic: existing tables stay as they are."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _create_version()
    _create_watermarks()
    _create_runs()
    _create_boundaries()


def _create(name: str, *columns: sa.schema.SchemaItem) -> None:
    op.create_table(name, *columns, if_not_exists=True)


def _create_version() -> None:
    """The row that versions without Alembic read, too."""
    name = "kafka_replication_schema"
    _create(name, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
    op.execute(f"INSERT INTO {name} (version) SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM {name})")


def _key(primary: bool) -> list[sa.Column[Any]]:
    return [
        sa.Column("replication", sa.String, primary_key=primary, nullable=False),
        sa.Column("source_topic", sa.String, primary_key=primary, nullable=False),
        sa.Column("source_partition", sa.Integer, primary_key=primary, nullable=False, autoincrement=False),
        sa.Column("target_topic", sa.String, primary_key=primary, nullable=False),
    ]


def _value(version_is_key: bool) -> list[sa.Column[Any]]:
    return [
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("source_topic_id", sa.String, nullable=False),
        sa.Column("target_topic_id", sa.String, nullable=False),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, primary_key=version_is_key, nullable=False, autoincrement=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("run_id", sa.String, nullable=False),
    ]


def _create_watermarks() -> None:
    _create("kafka_replication_watermarks", *_key(primary=True), *_value(version_is_key=False))
    _create("kafka_replication_watermark_history", *_key(primary=True), *_value(version_is_key=True))
    _create(
        "kafka_replication_leases",
        sa.Column("replication", sa.String, primary_key=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("held", sa.Boolean, nullable=False),
        sa.Column("acquired_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
    )


def _create_runs() -> None:
    _create(
        "kafka_replication_runs",
        sa.Column("sequence", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.String, nullable=False, unique=True),
        sa.Column("replication", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger),
    )
    op.create_index(
        "kafka_replication_runs_latest", "kafka_replication_runs", ["replication", "sequence"], if_not_exists=True
    )
    outcomes = "kafka_replication_range_outcomes"
    _create(
        outcomes,
        sa.Column("run_id", sa.String, sa.ForeignKey("kafka_replication_runs.run_id"), primary_key=True),
        *_key(primary=True),
        sa.Column("from_offset", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("until_offset", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("copied", sa.BigInteger, nullable=False),
        sa.Column("not_visible", sa.BigInteger, nullable=False),
        sa.Column("digest_ok", sa.Boolean),
        sa.Column("level", sa.String, nullable=False),
        sa.Column("watermark", sa.BigInteger),
        sa.Column("error", sa.Text),
        sa.Column("remedy", sa.Text),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("recorded_at", sa.BigInteger, nullable=False),
        sa.Column("verified_at", sa.BigInteger),
    )
    op.create_index(
        "kafka_replication_range_outcomes_verified", outcomes, ["replication", "verified_at"], if_not_exists=True
    )


def _create_boundaries() -> None:
    _create(
        "kafka_replication_boundaries",
        sa.Column("replication", sa.String, primary_key=True),
        sa.Column("source_topic", sa.String, primary_key=True),
        sa.Column("source_partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("source_topic_id", sa.String, primary_key=True),
        sa.Column("time", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
    )
