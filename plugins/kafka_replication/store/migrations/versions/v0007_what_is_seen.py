"""For a page: each replication as somebody saw it last, samples over time, and alerts that are over.

A process of the version before goes on beside it: it writes none of these tables, and both indexes are of columns that
it fills.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "kafka_replication_standings",
        sa.Column("replication", sa.String, primary_key=True),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("work", sa.Text),
        sa.Column("measured_at", sa.BigInteger),
        sa.Column("partition_count", sa.Integer, nullable=False),
        sa.Column("lag_records", sa.BigInteger),
        sa.Column("lag_seconds", sa.Float),
        sa.Column("partitions", sa.Text),
    )
    op.create_table(
        "kafka_replication_samples",
        sa.Column("replication", sa.String, primary_key=True),
        sa.Column("span", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("lag_records", sa.BigInteger),
        sa.Column("lag_seconds", sa.Float),
        sa.Column("records", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
    )
    op.create_table(
        "kafka_replication_past_alerts",
        sa.Column("replication", sa.String, primary_key=True),
        sa.Column("ended_at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String, primary_key=True),
        sa.Column("subject", sa.String, primary_key=True),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("remedy", sa.Text, nullable=False),
    )
    outcomes = "kafka_replication_range_outcomes"
    place = ["replication", "source_topic", "source_partition", "target_topic", "recorded_at"]
    op.create_index(f"{outcomes}_partition", outcomes, place)
    failed = "kafka_replication_failed_records"
    op.create_index(f"{failed}_state", failed, ["replication", "state"])
    op.execute("UPDATE kafka_replication_schema SET version = 7")
