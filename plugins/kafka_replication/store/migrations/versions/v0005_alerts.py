"""The open causes of alerts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
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
    op.execute("UPDATE kafka_replication_schema SET version = 5")
