"""Acquire the lease of a replication, which turns a `Run` into a `LeasedRun`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_replication.config import Replication
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.watermarks.lease import HeldLease, Release, wait_for_lease
from kafka_replication.watermarks.store import WatermarkStore


def acquire_lease(
    replication: Replication, store: WatermarkStore, owner: str, *, attempt: str, release: Release
) -> HeldLease:
    """Acquire the lease for the run ``owner``; wait at most ``lease.wait`` seconds. Raises Busy, which names the
    holder.

    ``attempt`` names the holder. A random part makes it unique, so that two processes of the same name never have the
    lease at the same time.
    """
    settings, holder = replication.lease, f"{attempt} {secrets.token_hex(4)}"
    lease = wait_for_lease(store, replication.name, owner, holder, settings.duration, settings.wait)
    return HeldLease(store, lease, settings.duration, release=release)


@contextmanager
def leased(run: Run, attempt: str = "command") -> Iterator[LeasedRun]:
    """``run`` with its lease, which is renewed while the body runs and released after it. Raises Busy."""
    with acquire_lease(run.replication, run.store, run.run_id, attempt=attempt, release="always") as lease:
        yield run.holding(lease.check)
