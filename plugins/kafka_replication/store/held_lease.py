"""Waits for a lease, and renews it while the work runs."""

from __future__ import annotations

import logging
import random
import threading
import time
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from kafka_replication.model.errors import Busy, ReplicationError, Unreachable
from kafka_replication.watermarks.values import Claim, Lease, Scope, TargetTopics

if TYPE_CHECKING:
    from kafka_replication.store.leases import Leases

log = logging.getLogger(__name__)

RESERVED: Final = (
    60.0  # seconds that a lease stays reserved between two tasks: Airflow starts the next one within a few
)
LONGEST_PAUSE: Final = 1.0  # seconds between two attempts to get a lease

Release = Literal["never", "on failure", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The times of a lease in seconds: ``duration`` without a renewal, and ``wait`` for the lease of another attempt.

    ``expected``: how long after the end of one task the next task of the run may take to begin.
    """

    duration: float
    wait: float
    expected: float = 3600.0

    def __post_init__(self) -> None:
        if self.duration <= 0:
            raise ValueError(f"a lease lasts more than 0 s, not {self.duration:g} s")


def wait_for_lease(store: Leases, claim: Claim, terms: Terms) -> Lease:
    """Try to acquire the lease, at least once and for about ``terms.wait`` seconds; then take the free topics, if they
    are enough for the claim.

    If an earlier attempt of the same run may still be at work, the next one waits until the lease of that attempt has
    expired, even if this is longer than the wait. The last try is always after the end of the wait, so that a free
    lease is taken. Raises Busy naming the holder; then the attempt has no place in the queue any more.
    """
    try:
        return _in_queue(store, claim, terms)
    except Busy:
        store.leave_queue(claim)
        raise


def _in_queue(store: Leases, claim: Claim, terms: Terms) -> Lease:
    """As `wait_for_lease`, but the place in the queue stays until it expires."""
    started, pause = time.monotonic(), 0.05
    while True:
        asked = time.monotonic()
        try:
            return store.acquire_lease(claim, terms.duration)
        except Busy as busy:
            same_run = busy.owner == claim.owner and busy.holder != claim.holder
            bound = max(terms.wait, terms.duration) if same_run else terms.wait
            if asked >= started + bound:
                return _without_waiting(store, claim, terms, busy, bound)
        left = max(0.0, started + bound - time.monotonic())
        # Up to a quarter shorter, so that runs that started together do not try together for ever.
        time.sleep(min(pause * random.uniform(0.75, 1), left))
        pause = min(pause * 2, LONGEST_PAUSE, terms.duration / 3)


def _without_waiting(store: Leases, claim: Claim, terms: Terms, busy: Busy, waited: float) -> Lease:
    impatient = replace(claim, scope=claim.scope.impatient())
    try:
        if impatient != claim:
            return store.acquire_lease(impatient, terms.duration)
    except Busy as still:
        busy = still
    what = f"{busy.what}; {claim.owner} waited {waited:g} s"
    raise Busy(what, busy.remedy, owner=busy.owner, holder=busy.holder)


class HeldLease:
    """Keeps a lease during a ``with`` block: a daemon thread renews it after each third of its duration.

    Two renewals may fail before the lease can expire. `lost` becomes true when the store says that another attempt has
    it. If no renewal succeeded for a whole duration, measured on this host's monotonic clock, then `check` asks the
    store. Entering renews the lease at once, and raises Busy if it is lost already. At the end the lease is released,
    or else reserved for the next task of the same run; ``release`` says when it is released.
    """

    def __init__(self, store: Leases, lease: Lease, terms: Terms, *, release: Release = "never") -> None:
        self.lease = lease
        self._store = store
        self._terms = terms
        self._release = release
        self._gone: Busy | None = None
        self._renewed = time.monotonic()
        self._stop = threading.Event()
        self._renewing = threading.RLock()
        self._thread = threading.Thread(target=self._keep, name=f"lease of {lease.replication}", daemon=True)

    @property
    def lost(self) -> bool:
        """True if another attempt has the lease."""
        return self._gone is not None

    def check(self) -> None:
        """Raises Busy if the lease is lost: the work must stop.

        In doubt this asks the store, which waits for its database. While the database does not answer, no other attempt
        can get the lease either.
        """
        if self._gone is None and time.monotonic() - self._renewed >= self._terms.duration:
            try:
                self._renew()
            except Unreachable as problem:
                raise Busy(
                    f"{self.lease.who} could not renew the lease of {self.lease.replication} for"
                    f" {time.monotonic() - self._renewed:.0f} s: {problem.what}",
                    "make the store reachable, then run again",
                ) from problem
        if self._gone is not None:
            raise Busy(self._gone.what, self._gone.remedy)

    def narrow(self, topics: TargetTopics) -> None:
        """Release all but these topics. Raises Busy if the lease is lost."""
        with self._renewing:
            kept = self.lease.topics.both(topics)
            self.lease = self._store.renew_lease(self.lease, self._terms.duration, kept)

    def give_way(self, seconds: float) -> bool:
        """Let attempts work that wait for topics of this lease, then go on. Returns True if one waited.

        Raises Busy if the lease is lost, or does not come back within ``seconds``.
        """
        with self._renewing:
            before = self.lease
            if not self._store.give_way(before, self._terms.duration):
                return False
            log.info("%s gives way to a run that waits for its topics", before.who)
            assert before.holder is not None
            claim = Claim(
                replication=before.replication,
                owner=before.owner,
                holder=before.holder,
                scope=Scope.exactly(before.topics),
                process=before.process,
            )
            self.lease = _in_queue(self._store, claim, replace(self._terms, wait=seconds))  # else `_end` leaves it
            self._renewed = time.monotonic()
            return True

    def __enter__(self) -> Self:
        try:
            self._renew()
            self.check()
        except BaseException:
            self._end(failed=True)
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(self._terms.duration)
        self._end(failed=error is not None)

    def _end(self, *, failed: bool) -> None:
        try:
            if self._release == "always" or (failed and self._release == "on failure"):
                self._store.release_lease(self.lease)
            else:
                self._store.hand_over_lease(self.lease, max(RESERVED, self._terms.duration), self._terms.expected)
        except ReplicationError as problem:  # it must not hide the body's error; the lease expires
            log.warning("could not give back the %s: %s", self.lease, problem)

    def _renew(self) -> None:
        """Sets `_gone` if another attempt has the lease. Raises Unreachable."""
        with self._renewing:
            started = time.monotonic()  # before the call: the store may set the expiry at once and answer late
            try:
                self.lease = self._store.renew_lease(self.lease, self._terms.duration)
            except Busy as gone:
                self._gone = gone
                log.error("%s", gone)
                return
            self._renewed = started

    def _keep(self) -> None:
        while not self._stop.wait(self._terms.duration / 3) and self._gone is None:
            try:
                self._renew()
            except Exception as problem:  # noqa: BLE001 - `check` asks again
                log.warning("could not renew the %s: %s", self.lease, problem)
