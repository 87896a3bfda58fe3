"""The records that could not be copied, and the decisions about them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "kafka_replication_failed_records",
        sa.Column("replication", sa.String, primary_key=True),
        sa.Column("source_topic", sa.String, primary_key=True),
        sa.Column("source_partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("target_topic", sa.String, primary_key=True),
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
    op.execute("UPDATE kafka_replication_schema SET version = 6")
