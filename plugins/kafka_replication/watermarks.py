"""The watermark store as the domain sees it: value types, the rules of change, the interface, and holding a lease.

Nothing here touches a database; `kafka_replication.store` does. Every time in these values is UTC and was read from the
**store's** clock: hosts whose clocks disagree still agree on which lease has expired. Durations are seconds.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, Protocol, Self

from kafka_replication.errors import Busy, Refused, ReplicationError, StaleWriter
from kafka_replication.intervals import BoundaryKey
from kafka_replication.keys import PartitionKey
from kafka_replication.offsets import MAX_OFFSET, OffsetRange

log = logging.getLogger(__name__)

RUN_STATES: Final = ("planned", "done", "nothing_to_do", "failed")


@dataclass(frozen=True, slots=True)
class Watermark:
    """``offset`` is the next source offset after the last copied and verified one; ``version`` moves by one at every change."""

    key: PartitionKey
    generation: int
    source_topic_id: str
    target_topic_id: str
    offset: int
    version: int
    updated_at: datetime
    run_id: str

    def __post_init__(self) -> None:
        if not 0 <= self.offset <= MAX_OFFSET or self.generation < 0 or self.version < 1:
            raise ValueError(f"not a watermark: offset {self.offset}, generation {self.generation}, version {self.version}")
        if not self.source_topic_id or not self.target_topic_id or not self.run_id:
            raise ValueError(f"a watermark of {self.key} needs both topic ids and a run id")

    def __str__(self) -> str:
        return f"{self.key} at {self.offset} (generation {self.generation}, version {self.version})"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one ``owner`` (a run id) to work on a replication. ``token`` grows with every change of hands, never back."""

    replication: str
    owner: str
    acquired_at: datetime
    expires_at: datetime
    token: int

    def __post_init__(self) -> None:
        if not self.replication or not self.owner or self.token < 1:
            raise ValueError(f"not a lease: {self.replication!r}, {self.owner!r}, token {self.token}")

    def __str__(self) -> str:
        return f"lease {self.token} of {self.replication}, held by {self.owner} until {_at(self.expires_at)}"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run with the plan it is bound to (JSON text, opaque here). ``state`` is one of `RUN_STATES`."""

    run_id: str
    replication: str
    kind: str
    state: str
    plan: str
    created_at: datetime
    finished_at: datetime | None = None

    def __post_init__(self) -> None:
        if not self.run_id or not self.replication or not self.kind or self.state not in RUN_STATES:
            raise ValueError(f"not a run: {self.run_id!r}, {self.replication!r}, {self.kind!r}, {self.state!r}")


@dataclass(frozen=True, slots=True)
class RangeOutcome:
    """What became of one offset range in one run.

    ``digest_ok`` is None until a verification compared digests; ``level`` names what was compared. ``watermark`` is the
    partition's stored watermark after the run, None where it was not moved. ``seconds`` and ``bytes`` are the copy's.
    ``recorded_at`` is set by the store and takes no part in comparisons.
    """

    run_id: str
    key: PartitionKey
    range: OffsetRange
    copied: int = 0
    not_visible: int = 0
    digest_ok: bool | None = None
    level: str = ""
    watermark: int | None = None
    error: str | None = None
    remedy: str | None = None
    seconds: float = 0.0
    bytes: int = 0
    recorded_at: datetime | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.run_id or min(self.copied, self.not_visible, self.bytes, self.seconds) < 0:
            raise ValueError(f"not an outcome of {self.key} {self.range}: {self.copied} copied, {self.not_visible} not visible")


class WatermarkStore(Protocol):
    """Watermarks, leases and runs. Every method may raise `Unreachable`; all may be called from any thread or process,
    and each may be repeated after an unknown outcome without doing its work twice."""

    def watermarks(self, replication: str) -> dict[PartitionKey, Watermark]: ...

    def advance(
        self,
        key: PartitionKey,
        *,
        generation: int,
        source_topic_id: str,
        target_topic_id: str,
        offset: int,
        expected_version: int | None,
        run_id: str,
    ) -> Watermark:
        """Compare-and-set by `settle`'s rules; returns what is stored afterwards. Raises StaleWriter, Refused."""

    def restore(
        self,
        key: PartitionKey,
        *,
        generation: int,
        source_topic_id: str,
        target_topic_id: str,
        offset: int,
        expected_version: int | None,
        run_id: str,
    ) -> Watermark:
        """Store exactly this, lower or not, by `settle_restored`'s rules: the ledger says so. Raises StaleWriter."""

    def history(self, key: PartitionKey) -> list[Watermark]:
        """Every change ever made, oldest first."""

    def acquire_lease(self, replication: str, owner: str, duration_seconds: float) -> Lease:
        """Take, take over or renew the lease by `settle_lease`'s rules, at once. Raises Busy."""

    def renew_lease(self, lease: Lease, duration_seconds: float) -> Lease:
        """Let it end ``duration_seconds`` from now, even when it expired and nobody took it. Raises Busy once it changed hands."""

    def release_lease(self, lease: Lease) -> None:
        """Give it back; does nothing when it is not (or no longer) the one stored."""

    def lease_of(self, replication: str) -> Lease | None:
        """The lease in force now; None when there is none or it has expired."""

    def start_run(self, run_id: str, replication: str, kind: str, plan_json: str, *, instead_of: str | None = None) -> RunRecord:
        """Store the run's plan once; a repeated call returns what is stored, with **its** plan, unless that is the one ``instead_of``.

        Raises Refused when the id belongs to another replication or kind.
        """

    def run(self, run_id: str) -> RunRecord | None: ...

    def runs(self, replication: str, limit: int = 50) -> list[RunRecord]:
        """The latest runs, newest first."""

    def finish_run(self, run_id: str, state: str) -> RunRecord:
        """Raises BadInput for an unknown run, ValueError for a state that is not in `RUN_STATES`."""

    def record_outcome(self, outcome: RangeOutcome) -> None:
        """Insert or replace by run, key and range. Raises BadInput when the run was not started for that replication."""

    def outcomes(self, run_id: str) -> list[RangeOutcome]:
        """Ordered by topic, partition and range."""

    def last_verified(self, replication: str) -> dict[PartitionKey, datetime]:
        """When an outcome with ``digest_ok`` was last recorded; partitions never verified are absent."""

    def settle_boundaries(
        self, replication: str, moment: datetime, found: Mapping[BoundaryKey, int], copied: Mapping[BoundaryKey, int | None] = {}
    ) -> dict[BoundaryKey, int]:
        """What ``moment`` (in ms) is in each partition of ``found``: stored once by `settle_boundary`'s rule, never changed."""

    def newest_boundary(self, replication: str) -> datetime | None:
        """The latest moment that has a boundary in any partition."""

    def close(self) -> None: ...


def settle(stored: Watermark | None, wanted: Watermark, expected_version: int | None) -> Watermark:
    """What has to be stored once somebody asks for ``wanted``: ``stored`` itself (nothing changes) or ``wanted``.

    The same generation with the same topic ids and an offset not above the stored one changes nothing, whatever version
    was expected. Anything else needs the stored version, and only a newer generation may change ids or go back.
    Raises StaleWriter (somebody else was here first) or Refused (a topic was re-created).
    """
    if stored is None:
        if expected_version is None:
            return wanted
        raise StaleWriter(
            f"{wanted.key}: version {expected_version} was expected, but the store holds no watermark: it was lost or replaced",
            "check the store's url, then rebuild the watermarks from the ledger",
        )
    if wanted.generation < stored.generation:
        raise StaleWriter(
            f"{wanted.key}: generation {wanted.generation} is over: {_who(stored)}", "run again; it plans with the new generation"
        )
    if wanted.generation == stored.generation:
        _same_topics(stored, wanted)
        if wanted.offset <= stored.offset:
            return stored
    if expected_version != stored.version:
        raise StaleWriter(
            f"{wanted.key}: {wanted.run_id} wants {wanted.offset} at version {expected_version or 'none'}, but {_who(stored)}",
            "run again; it plans from the stored watermark",
        )
    return replace(wanted, version=stored.version + 1)


def settle_restored(stored: Watermark | None, wanted: Watermark, expected_version: int | None) -> Watermark:
    """``wanted`` whatever was stored, as long as nobody moved it since it was read; versions only move forward. Raises StaleWriter."""
    if stored is None:
        return settle(stored, wanted, expected_version)
    if stored.version != expected_version:
        raise StaleWriter(f"{wanted.key}: version {expected_version or 'none'} was expected, but {_who(stored)}", "look again")
    same = replace(wanted, version=stored.version, updated_at=stored.updated_at, run_id=stored.run_id) == stored
    return stored if same else replace(wanted, version=stored.version + 1)


def _same_topics(stored: Watermark, wanted: Watermark) -> None:
    for side, had, has in (
        ("source", stored.source_topic_id, wanted.source_topic_id),
        ("target", stored.target_topic_id, wanted.target_topic_id),
    ):
        if had != has:
            raise Refused(
                f"{wanted.key}: the {side} topic was re-created: its id is {has}, but {_who(stored)} for topic id {had}",
                "if the new topic is meant, reset the partition, which starts a new generation",
            )


def settle_lease(stored: Lease | None, held: bool, wanted: Lease, now: datetime) -> Lease:
    """The lease to store when ``wanted.owner`` asks; ``stored`` is the last one, ``held`` says that it was not given back.

    Its own owner renews it under the same token, expired or not: nobody had it in between.
    Anybody else waits until it is given back or expired, and gets the next token. Raises Busy naming holder and expiry.
    """
    if stored is None:
        return wanted
    if held and stored.owner == wanted.owner:
        return replace(stored, expires_at=wanted.expires_at)
    if held and stored.expires_at > now:
        raise Busy(
            f"{stored.replication} is being worked on by {stored.owner}, whose lease ends {_at(stored.expires_at)} unless renewed",
            "wait for that run, or stop it; a dead run's lease ends by itself",
        )
    return replace(wanted, token=stored.token + 1)


def lost(lease: Lease, holder: Lease | None) -> Busy:
    """The error of somebody who thought to hold ``lease`` while the store knows ``holder`` (None: given back)."""
    state = f"{holder.owner} took it {_at(holder.acquired_at)}" if holder else "it was given back"
    return Busy(f"{lease.owner} no longer holds the lease of {lease.replication}: {state}", "let the other run finish, then run again")


def wait_for_lease(store: WatermarkStore, replication: str, owner: str, duration_seconds: float, wait_seconds: float) -> Lease:
    """Ask for the lease until it is given, at least once and for about ``wait_seconds``. Raises Busy naming the holder."""
    started, pause = time.monotonic(), 0.05
    while True:
        try:
            return store.acquire_lease(replication, owner, duration_seconds)
        except Busy as busy:
            left = started + wait_seconds - time.monotonic()
            if left <= 0:
                raise Busy(f"{busy.what}; {owner} waited {wait_seconds:g} s", busy.remedy) from None
        # Up to a quarter off, so that runs that started together do not ask together for ever.
        time.sleep(min(pause * random.uniform(0.75, 1), left))
        pause = min(pause * 2, 5.0)


class HeldLease:
    """Keeps a lease while the body of a ``with`` runs: a daemon thread renews it every third of ``duration_seconds``.

    Two renewals may fail before the lease can expire. `lost` becomes true when the store says that somebody else has it,
    or when no renewal succeeded for a whole duration (measured on this host's monotonic clock: an interval, not a time).
    Entering renews at once and raises Busy if the lease is gone by then.
    """

    def __init__(self, store: WatermarkStore, lease: Lease, duration_seconds: float, *, release: bool = False) -> None:
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
        """Raises Busy if the lease is lost: the work under it has to stop."""
        if self._gone is not None:
            raise Busy(self._gone.what, self._gone.remedy)
        if self.lost:
            raise Busy(
                f"{self.lease.owner} could not renew the lease of {self.lease.replication} for {self._duration:g} s",
                "make the store reachable, then run again",
            )

    def __enter__(self) -> Self:
        self._renew()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(self._duration)
        if not self._release:
            return
        try:
            self._store.release_lease(self.lease)
        except ReplicationError as problem:  # must not hide the body's own error; the lease ends by itself
            log.warning("could not give back the %s: %s", self.lease, problem)

    def _renew(self) -> None:
        asked = time.monotonic()  # before the call: the store may have set the expiry right away and answered late
        self.lease = self._store.renew_lease(self.lease, self._duration)
        self._renewed = asked

    def _keep(self) -> None:
        while not self._stop.wait(self._duration / 3):
            try:
                self._renew()
            except Busy as gone:
                self._gone = gone
                log.error("%s", gone)
                return
            except Exception as problem:  # noqa: BLE001 - whatever it is, `lost` tells once it lasted too long
                log.warning("could not renew the %s: %s", self.lease, problem)


EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def from_millis(millis: int) -> datetime:
    """UTC from milliseconds since the epoch, without a float's rounding."""
    return EPOCH + timedelta(milliseconds=millis)


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _who(stored: Watermark) -> str:
    return f"{stored.run_id} stored {stored.offset} (generation {stored.generation}, version {stored.version}) at {_at(stored.updated_at)}"
