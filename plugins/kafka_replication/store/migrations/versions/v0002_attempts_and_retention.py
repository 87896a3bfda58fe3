"""A lease is held by one attempt of its run; old runs and changes of watermarks are found by their age."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # Null: a lease that an older version took counts as reserved for the next task of its run.
    op.add_column("kafka_replication_leases", sa.Column("holder", sa.String))
    op.create_index("kafka_replication_runs_age", "kafka_replication_runs", ["replication", "created_at"])
    op.create_index(
        "kafka_replication_watermark_history_age", "kafka_replication_watermark_history", ["replication", "updated_at"]
    )
    op.drop_index("kafka_replication_range_outcomes_verified", "kafka_replication_range_outcomes")
    op.execute("UPDATE kafka_replication_schema SET version = 2")
