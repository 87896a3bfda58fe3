"""A run stores its progress."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    # Null: a run of an older version, or one that has not begun to copy.
    op.add_column("kafka_replication_runs", sa.Column("progress", sa.Text))
    op.execute("UPDATE kafka_replication_schema SET version = 3")
