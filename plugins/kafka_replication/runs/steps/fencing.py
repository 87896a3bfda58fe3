"""End transactions that earlier runs of this replication left open on the target."""

from __future__ import annotations

import logging
from contextlib import closing

from kafka_replication.model.keys import opening_id
from kafka_replication.runs.run import LeasedRun

log = logging.getLogger(__name__)


def fence_stale_producers(run: LeasedRun) -> None:
    """Fence the producers of dead or late runs: the writers that this run's lease names, and those of its own target
    topics that have a ledger entry in an open transaction.

    Without the first, an attempt that comes back late could write entries of this run's partitions. Without the second,
    the ledger could not be read until those transactions time out, after 10 minutes by default. Producers of other
    target topics are left alone: they may be at work.
    """
    stale = sorted(run.hold.lease.stale_writers)
    undecided = sorted(key for key in run.clusters.ledger.undecided() if run.holds(key.target_topic))
    ids = {key.transactional_id: str(key) for key in undecided}
    for writer in (*stale, *([run.writer_number] if undecided else [])):
        ids[opening_id(run.replication.name, writer)] = "opening"
    for transactional_id, what in ids.items():
        run.check()
        log.warning("%s: an earlier run may have left a transaction open; fencing its producer", what)
        with closing(run.writer(transactional_id, what)) as writer_:
            writer_.fence()
    if stale:
        run.hold.writers_fenced()
