"""Waits for a replication's lease, and renews it while the work runs."""

from __future__ import annotations

import logging
import random
import threading
import time
from types import TracebackType
from typing import Literal, Self

from kafka_replication.model.errors import Busy, ReplicationError
from kafka_replication.watermarks.store import WatermarkStore
from kafka_replication.watermarks.values import Lease

log = logging.getLogger(__name__)


Release = Literal["never", "on failure", "always"]


def wait_for_lease(
    store: WatermarkStore, replication: str, owner: str, holder: str, duration_seconds: float, wait_seconds: float
) -> Lease:
    """Try to acquire the lease, at least once and for about ``wait_seconds``.

    An attempt that was killed leaves its lease behind. The next attempt of the same run waits until that has expired,
    even if ``duration_seconds`` is longer than ``wait_seconds``. Raises Busy naming the holder.
    """
    started, pause = time.monotonic(), 0.05
    while True:
        try:
            return store.acquire_lease(replication, owner, holder, duration_seconds)
        except Busy as busy:
            current = store.lease_of(replication)
            same_run = current is not None and current.owner == owner
            bound = max(wait_seconds, duration_seconds) if same_run else wait_seconds
            left = started + bound - time.monotonic()
            if left <= 0:
                raise Busy(f"{busy.what}; {owner} waited {bound:g} s", busy.remedy) from None
        # Up to a quarter shorter, so that runs that started together do not try together for ever.
        time.sleep(min(pause * random.uniform(0.75, 1), left))
        pause = min(pause * 2, 5.0)


class HeldLease:
    """Keeps a lease during a ``with`` block: a daemon thread renews it after each third of ``duration_seconds``.

    Two renewals may fail before the lease can expire. `lost` becomes true when the store says that another attempt has
    it, or when no renewal succeeded for a whole duration, measured on this host's monotonic clock. Entering renews the
    lease at once, and raises Busy if it is lost already. At the end the lease is released, or else reserved for the
    next task of the same run; ``release`` says when it is released.
    """

    def __init__(
        self, store: WatermarkStore, lease: Lease, duration_seconds: float, *, release: Release = "never"
    ) -> None:
        if duration_seconds <= 0:
            raise ValueError(f"a lease lasts more than 0 s, not {duration_seconds:g} s")
        self.lease = lease
        self._store = store
        self._duration = duration_seconds
        self._release = release
        self._gone: Busy | None = None
        self._renewed = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease of {lease.replication}", daemon=True)

    @property
    def lost(self) -> bool:
        return self._gone is not None or time.monotonic() - self._renewed >= self._duration

    def check(self) -> None:
        """Raises Busy if the lease is lost: the work must stop."""
        if self._gone is not None:
            raise Busy(self._gone.what, self._gone.remedy)
        if self.lost:
            raise Busy(
                f"{self.lease.who} could not renew the lease of {self.lease.replication} for {self._duration:g} s",
                "make the store reachable, then run again",
            )

    def __enter__(self) -> Self:
        try:
            self._renew()
        except BaseException:
            self._end(failed=True)
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(self._duration)
        self._end(failed=error is not None)

    def _end(self, *, failed: bool) -> None:
        try:
            if self._release == "always" or (failed and self._release == "on failure"):
                self._store.release_lease(self.lease)
            else:
                self._store.hand_over_lease(self.lease, self._duration)
        except ReplicationError as problem:  # it must not hide the body's error; the lease expires
            log.warning("could not give back the %s: %s", self.lease, problem)

    def _renew(self) -> None:
        started = time.monotonic()  # before the call: the store may set the expiry at once and answer late
        self.lease = self._store.renew_lease(self.lease, self._duration)
        self._renewed = started

    def _keep(self) -> None:
        while not self._stop.wait(self._duration / 3):
            try:
                self._renew()
            except Busy as gone:
                self._gone = gone
                log.error("%s", gone)
                return
            except Exception as problem:  # noqa: BLE001 - `lost` becomes true if errors last too long
                log.warning("could not renew the %s: %s", self.lease, problem)
