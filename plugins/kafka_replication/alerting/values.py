"""The values of alerting: a cause of trouble, what is remembered of it while it lasts, and the alert that tells it.

All times are UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum


class Kind(StrEnum):
    """The kinds of causes, as stable ids. The order matters: of two kinds that explain each other, the first wins."""

    STORE = "store-unavailable"
    CLUSTER = "cluster-unavailable"
    LEDGER = "ledger-not-writable"
    GAP = "gap"
    REMOVED = "removed"
    REFUSED = "refused"
    STALLED = "run-stalled"
    DIED = "run-died"
    FAILED = "run-failed"
    MISSED = "schedule-missed"
    LAG = "lag"
    QUARANTINED = "quarantined"

    @property
    def rank(self) -> int:
        return _RANK[self]


_RANK = {kind: rank for rank, kind in enumerate(Kind)}
_TITLES = {
    Kind.STORE: "the watermark store cannot be used",
    Kind.CLUSTER: "a cluster cannot be reached",
    Kind.LEDGER: "the ledger cannot be written",
    Kind.GAP: "source offsets were lost before they were copied",
    Kind.REMOVED: "copies are no longer on the target",
    Kind.REFUSED: "partitions cannot be copied",
    Kind.STALLED: "a run makes no progress",
    Kind.DIED: "a run died or was stopped",
    Kind.FAILED: "a run failed",
    Kind.MISSED: "a scheduled run did not start",
    Kind.LAG: "the target is too far behind",
    Kind.QUARANTINED: "quarantined records wait for a decision",
}


@dataclass(frozen=True, slots=True)
class CauseKey:
    """Identifies a cause within one replication. ``subject`` is a source topic, or empty for the whole replication."""

    kind: Kind
    subject: str = ""

    @property
    def title(self) -> str:
        return f"{self.subject}: {_TITLES[self.kind]}" if self.subject else _TITLES[self.kind]

    def __str__(self) -> str:
        return f"{self.kind.value} {self.subject}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Something that is wrong now. ``places`` names partitions with their offsets.

    ``at`` is when it happened; None: it lasts, and began when it was first seen. A person is told after it has lasted
    ``patience`` seconds. ``run_id`` names the run, if there is one.
    """

    key: CauseKey
    what: str
    remedy: str
    places: tuple[str, ...] = ()
    at: datetime | None = None
    patience: float = 0.0
    run_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCause:
    """A cause that is not over. ``announced_at``: when a person was told of it last; None: not yet.

    A process that is about to tell holds a claim until ``claimed_until``, so that no other tells it, too.
    ``under`` is the announced cause that explains this one, so that it is not announced itself.
    """

    cause: Cause
    since: datetime
    at: datetime
    last_seen: datetime
    announced_at: datetime | None = None
    claimed_until: datetime | None = None
    under: CauseKey | None = None

    @property
    def key(self) -> CauseKey:
        return self.cause.key


class Event(StrEnum):
    """Why an alert is sent."""

    OPENED = "opened"
    REPEATED = "repeated"
    HEALED = "healed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One thing to tell: the cause, and the causes that it explains. ``claimed_until`` is the claim to confirm."""

    event: Event
    open: OpenCause
    at: datetime
    claimed_until: datetime
    consequences: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is wrong now. An open cause of a kind that is not in ``judged`` may be neither healed nor closed.

    The causes in ``kept`` were not seen now, and nothing has healed them. Those in ``over`` end without a message:
    nobody can say that they were healed.
    """

    causes: tuple[Cause, ...] = ()
    judged: frozenset[Kind] = frozenset(Kind)
    kept: frozenset[CauseKey] = frozenset()
    over: frozenset[CauseKey] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """``open`` replaces what was remembered; ``alerts`` are to be sent and then confirmed."""

    open: tuple[OpenCause, ...] = ()
    alerts: tuple[Alert, ...] = ()

    @property
    def told(self) -> tuple[OpenCause, ...]:
        """The causes that last and of which a person was told, or is told now."""
        healed = {alert.open.key for alert in self.alerts if alert.event is Event.HEALED}
        return tuple(row for row in self.open if (row.announced_at or row.claimed_until) and row.key not in healed)


Decide = Callable[[Sequence[OpenCause], datetime], Decision]


def confirmed(open_: Sequence[OpenCause], alerts: Collection[Alert], now: datetime) -> tuple[OpenCause, ...]:
    """What is remembered after ``alerts`` have been sent: a healed cause is forgotten.

    An alert whose claim another process has taken over changes nothing.
    """
    claims = {alert.open.key: alert for alert in alerts}
    kept = []
    for row in open_:
        alert = claims.get(row.key)
        if alert is None or row.claimed_until != alert.claimed_until:
            kept.append(row)
        elif alert.event is not Event.HEALED:
            kept.append(replace(row, announced_at=now, claimed_until=None))
    return tuple(kept)
