"""The table of consumer groups: what was seen of each, and committed for it on the target, the last time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import ValidationError
from sqlalchemy import Connection, delete, insert, select

from kafka_replication.documents import GroupRow
from kafka_replication.runtime.private_json import deferred
from kafka_replication.store import connect, schema
from kafka_replication.store.database import Database, reads, writes

_table = schema.groups
ROWS: Final = 1  # the version of the stored rows: raise it when a key of `GroupRow` is added or changes its sense


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A row, as a column of the store has it."""

    version: Literal[1] = ROWS
    row: GroupRow


_ROW = deferred(StoredGroup)


class Groups(Database):
    @writes
    def record_groups(self, db: Connection, replication: str, rows: Iterable[GroupRow]) -> None:
        """Store these groups of the replication in place of those before."""
        now = connect.clock(db)
        values = [
            {
                "replication": replication,
                "group_id": row.group,
                "measured_at": now,
                "document": _ROW.dump_json(StoredGroup(row=row), by_alias=True).decode(),
            }
            for row in rows
        ]
        db.execute(delete(_table).where(_table.c.replication == replication))
        if values:
            db.execute(insert(_table), values)

    @reads
    def groups(self, db: Connection, replication: str) -> list[GroupRow]:
        """The groups as they were seen the last time, by name. One that another version stored is left out."""
        query = select(_table.c.document).where(_table.c.replication == replication).order_by(_table.c.group_id)
        rows = list[GroupRow]()
        for text in db.execute(query).scalars():
            try:
                rows.append(_ROW.validate_json(text).row)
            except ValidationError:
                continue
        return rows
