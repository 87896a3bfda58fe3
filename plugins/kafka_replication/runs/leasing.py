"""Taking a replication's lease: how a `Run` becomes a `LeasedRun`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka_replication.config import Replication
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.watermarks.lease import HeldLease, wait_for_lease
from kafka_replication.watermarks.store import WatermarkStore


def acquire_lease(replication: Replication, store: WatermarkStore, owner: str, *, release: bool) -> HeldLease:
    """Wait for the lease, at most ``lease.wait`` seconds. Raises Busy, which names the holder."""
    lease = wait_for_lease(store, replication.name, owner, replication.lease.duration, replication.lease.wait)
    return HeldLease(store, lease, replication.lease.duration, release=release)


@contextmanager
def leased(run: Run) -> Iterator[LeasedRun]:
    """``run`` with its lease, which is renewed while the body runs and given back after it. Raises Busy."""
    with acquire_lease(run.replication, run.store, run.run_id, release=True) as lease:
        yield run.holding(lease.check)
