"""Sums that only grow, for metrics: the store forgets old runs, and a counter must not fall.

A process of the version before goes on beside it: what it does is not counted.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "kafka_replication_totals",
        sa.Column("replication", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("kind", sa.String, primary_key=True),
        sa.Column("outcome", sa.String, primary_key=True),
        sa.Column("value", sa.Float, nullable=False),
    )
    op.execute("UPDATE kafka_replication_schema SET version = 8")
