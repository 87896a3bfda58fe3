"""Ends the transactions of ranges that were given up. Otherwise readers would wait for their time-out."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kafka_replication.model.delivery import EXACTLY_ONCE
from kafka_replication.model.errors import OutOfTime
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.spark.jobs import Job, RangeTask

log = logging.getLogger(__name__)
SECONDS = 20.0  # for all of them; if the target does not answer, the next session of each range ends them


def end_sessions(job: Job, tasks: Sequence[RangeTask]) -> None:
    """Fence sessions that may still work on these tasks. Call it before the tasks are dealt again, never afterwards."""
    ids = {task.key.transactional_id: str(task.key) for task in tasks if task.copy is not None}
    if not ids or job.replication.delivery != EXACTLY_ONCE:
        return
    for what in ids.values():
        log.warning("%s: its work is given up here; ending the transaction that it may have open", what)
    deadline = Deadline.after(SECONDS)
    try:  # not before: a Spark driver that ends no session needs no client
        job.open_target(deadline).end_sessions(ids, lambda: deadline.check("ending transactions"))
    except OutOfTime:
        log.warning("not all of them were ended within %.0f s; the next session of each range ends its own", SECONDS)
