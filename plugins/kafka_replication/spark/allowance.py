"""How many records the tasks of a job may still set aside: what earlier ones did is no longer there for later ones."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from kafka_replication.model.keys import PartitionKey
from kafka_replication.spark.jobs import RangeResult, RangeTask


class Allowance:
    """Shared by threads. Tasks that are at work at the same time do not know of each other: each may use all of it."""

    def __init__(self) -> None:
        self._failed = dict[PartitionKey, int]()
        self._lock = threading.Lock()

    def limit(self, tasks: Sequence[RangeTask]) -> list[RangeTask]:
        """The tasks with what is left for them."""
        with self._lock:
            spent = sum(self._failed.values())
        return [
            replace(task, copy=replace(task.copy, most_failed=max(0, task.copy.most_failed - spent)))
            if task.copy is not None and spent
            else task
            for task in tasks
        ]

    def spend(self, results: Sequence[RangeResult]) -> None:
        with self._lock:
            for result in results:
                if result.copied is not None and result.copied.failed:
                    self._failed[result.key] = self._failed.get(result.key, 0) + result.copied.failed
