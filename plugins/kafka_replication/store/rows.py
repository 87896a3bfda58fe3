"""Builds the conditions, rows and statements that several tables of the store share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, and_

from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition


def key_values(key: PartitionKey) -> dict[str, Any]:
    return {
        "replication": key.replication,
        "source_topic": key.source.topic,
        "source_partition": key.source.partition,
        "target_topic": key.target_topic,
    }


def key_of(row: Row[*tuple[Any, ...]]) -> PartitionKey:
    return PartitionKey(row.replication, TopicPartition(row.source_topic, row.source_partition), row.target_topic)


def is_row(table: Table, values: Mapping[str, Any]) -> ColumnElement[bool]:
    """The condition that these columns have these values."""
    return and_(*(table.c[name] == value for name, value in values.items()))


def put(
    db: Connection, table: Table, rows: Sequence[Mapping[str, Any]], changes: Callable[[Any], Mapping[str, Any]]
) -> None:
    """Insert these rows in one statement; ``changes`` are those of a row that exists, from the columns of the new one.
    Loads only what this kind of database needs.
    """
    if not rows:
        return
    if db.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert
    else:
        from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
    statement, key = insert(table), [column.name for column in table.primary_key.columns]
    db.execute(statement.on_conflict_do_update(index_elements=key, set_=dict(changes(statement.excluded))), list(rows))


def replace(db: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert these rows in one statement, in place of those that exist."""
    others = [column.name for column in table.columns if rows and column.name in rows[0] and not column.primary_key]
    put(db, table, rows, lambda new: {name: new[name] for name in others})
