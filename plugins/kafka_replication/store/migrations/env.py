"""Alembic's environment: the connection comes from `kafka_replication.store.migrations.upgrade`, never from a file."""

from __future__ import annotations

from alembic import context

from kafka_replication.store.schema import ALEMBIC_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=ALEMBIC_TABLE,
    transactional_ddl=True,  # SQLite's too, since `connect` begins its transactions itself
)
context.run_migrations()
