"""The values of alerting: a cause of trouble, the memory of it while it lasts, and the alert that announces it.

All times are UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum


class Kind(StrEnum):
    """The kinds of causes, as stable ids. The order matters: of two kinds that explain each other, the first one
    explains.
    """

    STORE = "store-unavailable"
    CLUSTER = "cluster-unavailable"
    ADMISSION = "not-admitted"
    LEDGER = "ledger-not-writable"
    GAP = "gap"
    RETENTION = "loss-foreseen"
    REMOVED = "removed"
    REFUSED = "refused"
    STALLED = "run-stalled"
    DIED = "run-died"
    FAILED = "run-failed"
    MISSED = "schedule-missed"
    LAG = "lag"
    QUARANTINED = "quarantined"
    REPAIRED = "repaired"

    @property
    def rank(self) -> int:
        return _RANK[self]


_RANK = {kind: rank for rank, kind in enumerate(Kind)}
# The trouble while it lasts, and once it is over.
_TITLES = {
    Kind.STORE: ("the watermark store cannot be used", "the watermark store could not be used"),
    Kind.CLUSTER: ("a cluster cannot be reached", "a cluster could not be reached"),
    Kind.ADMISSION: ("a cluster does not let this client in", "a cluster did not let this client in"),
    Kind.LEDGER: ("the ledger cannot be written", "the ledger could not be written"),
    Kind.GAP: ("source offsets were lost before they were copied", "source offsets had been lost"),
    Kind.RETENTION: (
        "source records are about to be lost before they are copied",
        "source records were about to be lost before they were copied",
    ),
    Kind.REMOVED: ("copies are no longer on the target", "copies were no longer on the target"),
    Kind.REFUSED: ("partitions cannot be copied", "partitions could not be copied"),
    Kind.STALLED: ("a run makes no progress", "a run made no progress"),
    Kind.DIED: ("a run died or was stopped", "a run had died or had been stopped"),
    Kind.FAILED: ("a run failed", "a run had failed"),
    Kind.MISSED: ("a scheduled run did not start", "a scheduled run had not started"),
    Kind.LAG: ("the target is too far behind", "the target was too far behind"),
    Kind.QUARANTINED: ("quarantined records wait for a decision", "quarantined records waited for a decision"),
    Kind.REPAIRED: ("copies that the target had lost are replaced", "copies that the target had lost were replaced"),
}
_OF_ALL = {Kind.REFUSED: ("nothing can be copied", "nothing could be copied")}  # without a topic


@dataclass(frozen=True, slots=True)
class CauseKey:
    """Identifies a cause within one replication. ``subject`` is a source topic, or empty for the whole replication."""

    kind: Kind
    subject: str = ""

    def title(self, *, over: bool = False) -> str:
        """The trouble in words; in the past tense if it is ``over``."""
        if not self.subject:
            return (_TITLES | _OF_ALL)[self.kind][over]
        return f"{self.subject}: {_TITLES[self.kind][over]}"

    def __str__(self) -> str:
        return f"{self.kind.value} {self.subject}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Something that is wrong now. ``places`` names partitions with their offsets.

    ``at`` is the time when it happened; None if it lasts and began when it was first seen. It is announced after it has
    lasted ``patience`` seconds. ``run_id`` names the run, if there is one.
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
    """A cause that is not over for everybody. ``announced_at`` is the time of its last announcement; None if there was
    none.

    ``told`` has each way that took an announcement, or is just about to, with the time of the last one: its readers
    believe that the cause is open. ``over_at`` is the time when the cause ended; it is set while a way has not taken
    the message that it did. ``under`` is the announced cause that explains this one; this one is not announced itself.
    """

    cause: Cause
    since: datetime
    at: datetime
    last_seen: datetime
    announced_at: datetime | None = None
    under: CauseKey | None = None
    told: Mapping[str, datetime] = field(default_factory=dict, hash=False)
    over_at: datetime | None = None

    @property
    def key(self) -> CauseKey:
        return self.cause.key


class AlertEvent(StrEnum):
    """The reason why an alert is sent."""

    OPENED = "opened"
    REPEATED = "repeated"
    HEALED = "healed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One announcement: the cause as it was before, and the causes that it explains. ``to`` names the ways to send it
    on.
    """

    event: AlertEvent
    to: tuple[str, ...]
    open: OpenCause
    at: datetime
    consequences: tuple[Cause, ...] = ()

    @property
    def mark(self) -> datetime | None:
        """The time that ``told`` has for its ways, once it counts as told."""
        return None if self.event is AlertEvent.HEALED else self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The causes that were seen now. An open cause whose kind is not in ``judged`` is neither healed nor closed.

    The causes in ``kept`` were not seen now, and nothing has healed them. Those in ``over`` end without a message,
    because it is not known that they were healed.
    """

    causes: tuple[Cause, ...] = ()
    judged: frozenset[Kind] = frozenset(Kind)
    kept: frozenset[CauseKey] = frozenset()
    over: frozenset[CauseKey] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The result of `decide.decide`: ``open`` replaces the memory; ``alerts`` are to be sent."""

    open: tuple[OpenCause, ...] = ()
    alerts: tuple[Alert, ...] = ()

    @property
    def announced(self) -> tuple[OpenCause, ...]:
        """The open causes that were announced, or are announced now."""
        return tuple(row for row in self.open if row.announced_at and row.over_at is None)


Decide = Callable[[Sequence[OpenCause], datetime], Decision]


def taken_back(open_: Sequence[OpenCause], untold: Collection[Alert]) -> tuple[OpenCause, ...]:
    """The memory after none of their ways has taken these alerts: the next look finds them due again. A cause that is
    over comes back for the ways that do not know it. What was told since stays.
    """
    rows = {row.key: row for row in open_}
    for alert in untold:
        row = rows.get(alert.open.key)
        if row is None and alert.event is AlertEvent.HEALED:
            row = replace(alert.open, told={})
        if row is not None:
            marked = {way for way in alert.to if row.told.get(way) == alert.mark}
            before = {way: at for way, at in alert.open.told.items() if way in marked}
            told = {way: at for way, at in row.told.items() if way not in marked} | before
            rows[row.key] = replace(row, told=told, announced_at=row.announced_at if told else None)
    return tuple(rows.values())
