"""End transactions that earlier runs of this replication left open on the target."""

from __future__ import annotations

import logging
from contextlib import closing

from kafka_replication.model.errors import Busy, OutOfTime, ReplicationError
from kafka_replication.model.keys import opening_id, verified_id
from kafka_replication.runs.run import LeasedRun

log = logging.getLogger(__name__)


def fence_stale_producers(run: LeasedRun) -> None:
    """Fence producers of dead or hanging runs that have an entry of this run's target topics in an open transaction.

    Without this, the ledger could not be read until those transactions time out, after 10 minutes by default. Producers
    of other target topics are left alone: they may be at work. A run at work whose opening is fenced here repeats it. A
    producer that cannot be fenced is only logged: the copier of its partition fences it again, or fails alone.
    """
    undecided = sorted(key for key in run.clusters.ledger.undecided() if run.holds(key.target_topic))
    ids = {key.transactional_id: str(key) for key in undecided}
    if undecided:
        ids |= {opening_id(run.replication.name): "opening", verified_id(run.replication.name): "what is verified"}
    for transactional_id, what in ids.items():
        run.check()
        log.warning("%s: an earlier run may have left a transaction open; fencing its producer", what)
        try:
            with closing(run.transactional(transactional_id, what)) as writer:
                writer.fence()
        except (Busy, OutOfTime):
            raise
        except ReplicationError as error:  # if its transaction hides entries, reading the ledger says so
            log.warning("%s: its producer was not fenced: %s", what, error)
