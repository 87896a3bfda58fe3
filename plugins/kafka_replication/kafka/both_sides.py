"""Reads one partition on source and target, to find out what became of the records that were sent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_replication.kafka import clients, offsets
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.kafka.sending import StallClock
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.verification.audit import Seen

AT_REST = 3.0  # seconds; a log that has not grown for so long gets no more of the records that were sent
LOOK = 0.1


class KafkaSides:
    """A `BothSides` with a consumer for each side, made when it is first needed."""

    def __init__(
        self, source: clients.ClientConfig, target: clients.ClientConfig, key: PartitionKey, stall: float
    ) -> None:
        self._config, self._key, self._stall = {"source": source, "target": target}, key, stall
        self._cursors: dict[str, Cursor] = {}

    def source_log(self) -> OffsetRange:
        admin, at = clients.shared_admin(self._config["source"]), self._key.source
        start, end = offsets.log_starts(admin, [at])[at], offsets.last_stable(admin, [at])[at]
        return OffsetRange(min(start, end), end)

    def target_log(self, expected: int) -> OffsetRange:
        admin, at = clients.shared_admin(self._config["target"]), self._key.target
        rest, end = StallClock(AT_REST), 0
        while (end := offsets.last_stable(admin, [at])[at]) < expected and not rest.is_over(-end):
            time.sleep(LOOK)
        start = offsets.log_starts(admin, [at])[at]
        return OffsetRange(min(start, end), end)

    def source(self, wanted: OffsetRange) -> Iterator[Seen]:
        return self._cursor("source").seen(wanted)

    def target(self, wanted: OffsetRange) -> Iterator[Seen]:
        return self._cursor("target").seen(wanted)

    def _cursor(self, side: str) -> Cursor:
        if side not in self._cursors:
            at = self._key.source if side == "source" else self._key.target
            self._cursors[side] = Cursor(self._config[side], consumer_group(self._key.replication), at, self._stall)
        return self._cursors[side]

    def close(self) -> None:
        for cursor in self._cursors.values():
            cursor.close()


@contextmanager
def both_sides(
    source: clients.ClientConfig, target: clients.ClientConfig, key: PartitionKey, stall: float
) -> Iterator[KafkaSides]:
    sides = KafkaSides(source, target, key, stall)
    try:
        yield sides
    finally:
        sides.close()
