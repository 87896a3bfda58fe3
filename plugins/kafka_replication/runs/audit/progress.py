"""Shows the progress of an audit, each time that results come."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from kafka_replication.reporting.run.progress import Counts, Speed
from kafka_replication.runs.run import Run
from kafka_replication.runtime.events import Event, log_event
from kafka_replication.verification.auditing import Audit, Size

log = logging.getLogger(__name__)
LOG_EVERY = 10.0  # seconds


class Shown:
    """The progress over these tasks. ``what`` names their partitions."""

    def __init__(self, run: Run, tasks: Sequence[Audit], what: str) -> None:
        self._run, self._what = run, what
        self._tasks = {task.id: task for task in tasks}
        self._left = Counter(task.partition for task in tasks)
        self._partitions = len(self._left)
        self._offsets = sum(map(_weight, tasks))
        self._done, self._weight = Size(), 0
        self._pace = Speed(time.monotonic(), 0)
        self._said = time.monotonic()

    def done(self, ids: Iterable[int]) -> None:
        """These tasks have a result."""
        for task in (self._tasks[id_] for id_ in ids):
            self._left -= Counter([task.partition])
            self._done += task.size
            self._weight += _weight(task)
        moment = time.monotonic()
        counts = Counts(
            ranges=self._partitions,
            ranges_done=self._partitions - len(self._left),
            offsets=self._offsets,
            offsets_done=self._weight,
        )
        progress = self._pace.progress(moment, counts, self._done.records, self._done.bytes)
        if self._run.show is not None:
            self._run.show(progress)
        elif moment - self._said >= LOG_EVERY or not self._left:
            self._said = moment
            log_event(
                log,
                logging.INFO,
                Event.PROGRESS,
                "%s: audit of %s: %s",
                self._run.replication.name,
                self._what,
                progress,
            )


def _weight(task: Audit) -> int:
    """Its share of the whole: no task is nothing."""
    return max(1, task.size.offsets)
