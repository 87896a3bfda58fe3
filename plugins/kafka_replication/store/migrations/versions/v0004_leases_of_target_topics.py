"""A lease is for some target topics, and for one attempt. A run stores until when its next task is expected."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # The table of the older versions stays: a lease in it is one of all target topics.
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
    # Null: no task is expected.
    op.add_column("kafka_replication_runs", sa.Column("expected_until", sa.BigInteger))
    op.create_index("kafka_replication_runs_open", "kafka_replication_runs", ["replication", "state"])
    op.execute("UPDATE kafka_replication_schema SET version = 4")
