"""The table of boundaries: the offset of a time in each partition. The first caller stores it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, func, insert, select

from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.times import floor_millis, from_millis
from kafka_replication.store.database import Database, reads, writes
from kafka_replication.store.schema import boundaries
from kafka_replication.watermarks.boundaries import BoundaryKey, decide_boundary

_c = boundaries.c
_KEY = (_c.source_topic, _c.source_partition, _c.source_topic_id)


class Boundaries(Database):
    @reads
    def newest_boundary(self, db: Connection, replication: str) -> datetime | None:
        """The latest moment that has a boundary in any partition."""
        time: int | None = db.execute(select(func.max(_c.time)).where(_c.replication == replication)).scalar()
        return None if time is None else from_millis(time)

    @writes
    def store_boundaries(
        self,
        db: Connection,
        replication: str,
        moment: datetime,
        resolved: Mapping[BoundaryKey, int],
        copied: Mapping[BoundaryKey, int | None] = {},
    ) -> dict[BoundaryKey, int]:
        """The offset of ``moment`` in each partition of ``resolved``. The first call stores it by the rule of
        `decide_boundary`, with few statements; it never changes.
        """
        time = floor_millis(moment)
        stored = _offsets(db, replication, _c.time == time, func.max(_c.next_offset))
        new = sorted(resolved.keys() - stored.keys())
        if new:
            before = _offsets(db, replication, _c.time < time, func.max(_c.next_offset))
            after = _offsets(db, replication, _c.time > time, func.min(_c.next_offset))
            for key in new:
                stored[key] = decide_boundary(resolved[key], before.get(key), after.get(key), copied.get(key))
            db.execute(
                insert(boundaries),
                [
                    {
                        "replication": replication,
                        "source_topic": key.at.topic,
                        "source_partition": key.at.partition,
                        "source_topic_id": key.topic_id,
                        "time": time,
                        "next_offset": stored[key],
                    }
                    for key in new
                ],
            )
        return {key: stored[key] for key in resolved}


def _offsets(
    db: Connection, replication: str, when: ColumnElement[bool], which: ColumnElement[int]
) -> dict[BoundaryKey, int]:
    query = select(*_KEY, which.label("next_offset")).where(_c.replication == replication, when).group_by(*_KEY)
    return {
        BoundaryKey(TopicPartition(row.source_topic, row.source_partition), row.source_topic_id): row.next_offset
        for row in db.execute(query)
    }
