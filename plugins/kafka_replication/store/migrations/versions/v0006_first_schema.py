"""The first schema that was released. The versions before it, 1 to 5, were made by builds before the first release."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = None


def upgrade() -> None:
    _create_version()
    _create_watermarks()
    _create_runs()
    _create_boundaries()
    _create_alerts()
    _create_failed_records()


def _create_version() -> None:
    name = "kafka_replication_schema"
    op.create_table(name, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
    op.execute(f"INSERT INTO {name} (version) VALUES (6)")


def _key() -> list[sa.Column[Any]]:
    return [
        sa.Column("replication", sa.String, primary_key=True, nullable=False),
        sa.Column("source_topic", sa.String, primary_key=True, nullable=False),
        sa.Column("source_partition", sa.Integer, primary_key=True, nullable=False, autoincrement=False),
        sa.Column("target_topic", sa.String, primary_key=True, nullable=False),
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
    op.create_table("kafka_replication_watermarks", *_key(), *_value(version_is_key=False))
    history = "kafka_replication_watermark_history"
    op.create_table(history, *_key(), *_value(version_is_key=True))
    op.create_index("kafka_replication_watermark_history_age", history, ["replication", "updated_at"])
    op.create_table(
        "kafka_replication_leases",
        sa.Column("replication", sa.String, primary_key=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("held", sa.Boolean, nullable=False),
        sa.Column("acquired_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.String),
    )
    op.create_table(
        "kafka_replication_target_leases",
        sa.Column("replication", sa.String, primary_key=True),
        sa.Column("owner", sa.String, primary_key=True),
        sa.Column("holder", sa.String),
        sa.Column("waiting", sa.Boolean, nullable=False),
        sa.Column("topics", sa.Text, nullable=False),
        sa.Column("process", sa.Text),
        sa.Column("acquired_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
    )


def _create_runs() -> None:
    runs = "kafka_replication_runs"
    op.create_table(
        runs,
        sa.Column("sequence", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.String, nullable=False, unique=True),
        sa.Column("replication", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger),
        sa.Column("progress", sa.Text),
        sa.Column("expected_until", sa.BigInteger),
    )
    op.create_index("kafka_replication_runs_latest", runs, ["replication", "sequence"])
    op.create_index("kafka_replication_runs_age", runs, ["replication", "created_at"])
    op.create_index("kafka_replication_runs_open", runs, ["replication", "state"])
    op.create_table(
        "kafka_replication_range_outcomes",
        sa.Column("run_id", sa.String, sa.ForeignKey("kafka_replication_runs.run_id"), primary_key=True),
        *_key(),
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


def _create_boundaries() -> None:
    op.create_table(
        "kafka_replication_boundaries",
        sa.Column("replication", sa.String, primary_key=True),
        sa.Column("source_topic", sa.String, primary_key=True),
        sa.Column("source_partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("source_topic_id", sa.String, primary_key=True),
        sa.Column("time", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
    )


def _create_alerts() -> None:
    op.create_table(
        "kafka_replication_alerts",
        sa.Column("replication", sa.String, primary_key=True),
        sa.Column("kind", sa.String, primary_key=True),
        sa.Column("subject", sa.String, primary_key=True),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("last_seen", sa.BigInteger, nullable=False),
        sa.Column("announced_at", sa.BigInteger),
        sa.Column("claimed_until", sa.BigInteger),
        sa.Column("document", sa.Text, nullable=False),
    )


def _create_failed_records() -> None:
    op.create_table(
        "kafka_replication_failed_records",
        *_key(),
        sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("source_offset", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("key_digest", sa.String, nullable=False),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("error", sa.String, nullable=False),
        sa.Column("place_topic", sa.String),
        sa.Column("place_partition", sa.Integer),
        sa.Column("place_offset", sa.BigInteger),
        sa.Column("history", sa.Text, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
