"""The values of alerting: a cause of trouble, the memory of it while it lasts, and the alert that announces it.

All times are UTC.

Decides which causes are open, and which of them to announce now. Pure.

One trouble has one alert. A cause that an open one explains is remembered under it and not announced: when the target
does not answer, runs stall, fail and fall behind. The explaining cause stays open until no cause is left under it. Then
one message says that it is healed.

The alerts that this process told while the store was away, by replication. Nothing of it is on a disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final


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
    DRILL_WORSE = "drill-worse"
    DRILL_OVERDUE = "drill-overdue"
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
    Kind.DRILL_WORSE: (
        "the last failover drill was worse than asked",
        "an earlier failover drill had been worse than asked",
    ),
    Kind.DRILL_OVERDUE: ("no failover drill for too long", "there had been no failover drill for too long"),
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

    @property
    def is_told(self) -> bool:
        """True if somebody was told of the cause, and it is not over."""
        return self.announced_at is not None and self.over_at is None


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
        return tuple(row for row in self.open if row.is_told)


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


REPEAT_AFTER: Final = timedelta(days=1)
# A consequence may show this long after its cause was seen last: a run ends minutes after the cluster came back.
AFTERMATH: Final = timedelta(minutes=5)
LOG: Final = ("log",)  # the way of announcing if no other is configured

_ALL: Final = frozenset(Kind)
_OF_RUNS: Final = frozenset({Kind.STALLED, Kind.DIED, Kind.FAILED, Kind.MISSED, Kind.LAG})
_EXPLAINS: Final = {
    Kind.STORE: _ALL,
    Kind.CLUSTER: frozenset({Kind.LEDGER, *_OF_RUNS}),
    Kind.ADMISSION: frozenset({Kind.LEDGER, *_OF_RUNS}),
    Kind.LEDGER: _OF_RUNS,
    Kind.STALLED: frozenset({Kind.CLUSTER, Kind.ADMISSION, Kind.LEDGER, *_OF_RUNS}) - {Kind.STALLED},
    Kind.DIED: frozenset({Kind.MISSED, Kind.LAG}),
    Kind.FAILED: frozenset({Kind.MISSED, Kind.LAG}),
    Kind.MISSED: frozenset({Kind.LAG}),
}
# These explain a failure in the same topic, and the other way round.
_OF_ONE_TOPIC: Final = frozenset({Kind.GAP, Kind.REMOVED, Kind.REFUSED, Kind.FAILED})

Rows = dict[CauseKey, OpenCause]


def decide(open_: Sequence[OpenCause], observed: Observation, now: datetime, ways: Sequence[str] = LOG) -> Decision:
    """Return the open causes, and the alerts to send on these ``ways``. Each way counts for itself.

    The alerts count as told, so that no other process sends them, too. `values.taken_back` takes that back.
    """
    rows = _with_seen(open_, observed, now)
    kept: list[OpenCause] = []
    alerts: list[Alert] = []
    for key in sorted(rows, key=_order):
        row = rows[key]
        below = [other for other in rows.values() if other.under == key and not _ends(other, observed)]
        ends = not below and _ends(row, observed)
        row = replace(row, over_at=(row.over_at or now) if ends else None)
        due = {} if row.under else _due(row, below, observed, now, ways)
        consequences = tuple(other.cause for other in below)
        alerts += [Alert(event=event, to=to, open=row, at=now, consequences=consequences) for event, to in due.items()]
        if not ends:
            told = {**row.told, **{way: now for to in due.values() for way in to}}
            kept.append(replace(row, told=told, announced_at=now if due else row.announced_at))
    return Decision(open=tuple(kept), alerts=tuple(alerts))


def _with_seen(open_: Sequence[OpenCause], observed: Observation, now: datetime) -> Rows:
    """All causes that are open or seen. Those that were not announced have the cause that explains them, if any."""
    rows = {row.key: row for row in open_}
    for cause in observed.causes:
        rows[cause.key] = _seen(rows.get(cause.key), cause, now)
    for cause in sorted(observed.causes, key=lambda cause: _order(cause.key)):
        if rows[cause.key].announced_at is None:
            rows[cause.key] = replace(rows[cause.key], under=_explanation(rows[cause.key], rows))
    return rows


def _due(
    row: OpenCause, below: Sequence[OpenCause], observed: Observation, now: datetime, ways: Sequence[str]
) -> Mapping[AlertEvent, tuple[str, ...]]:
    """The events to announce about a cause that no other one explains, and the ways for each."""
    told = {way: row.told[way] for way in ways if way in row.told}
    due = dict[AlertEvent, tuple[str, ...]]()
    if row.over_at is None:
        if _lasts(row, observed) or below:
            # The shortest patience of the cause and of those that it explains decides.
            is_due = any((now - other.since).total_seconds() >= other.cause.patience for other in (row, *below))
            due[AlertEvent.OPENED] = tuple(way for way in ways if way not in told) if is_due else ()
            due[AlertEvent.REPEATED] = tuple(way for way, at in told.items() if now - at >= REPEAT_AFTER)
    elif row.key not in observed.over and now - row.over_at < REPEAT_AFTER:  # a broken way is not awaited for ever
        due[AlertEvent.HEALED] = tuple(told)
    return {event: to for event, to in due.items() if to}


def _order(key: CauseKey) -> tuple[int, str]:
    return key.kind.rank, key.subject


def _seen(row: OpenCause | None, cause: Cause, now: datetime) -> OpenCause:
    at = cause.at or now
    if row is None:
        return OpenCause(cause=cause, since=at, at=at, last_seen=now)
    if row.over_at is not None:  # it is back before all knew that it was over
        return replace(row, cause=cause, since=at, at=at, last_seen=now, over_at=None)
    return replace(row, cause=cause, at=cause.at or row.at, last_seen=now)


def _explanation(row: OpenCause, rows: Rows) -> CauseKey | None:
    """The cause that explains this one: an announced one, else one of a kind that comes first."""
    candidates = [
        other
        for other in rows.values()
        if other.key != row.key
        and other.under is None
        and _explains(other.key, row.key)
        and (other.announced_at is not None or _order(other.key) < _order(row.key))
        and row.at <= other.last_seen + AFTERMATH
    ]
    if not candidates:
        return None
    return min(candidates, key=lambda other: (other.announced_at is None, _order(other.key))).key


def _explains(cause: CauseKey, consequence: CauseKey) -> bool:
    if {cause.kind, consequence.kind} <= _OF_ONE_TOPIC:
        return cause.kind != consequence.kind and cause.subject == consequence.subject
    return consequence.kind in _EXPLAINS.get(cause.kind, ())


def _ends(row: OpenCause, observed: Observation) -> bool:
    """True if the cause is over, as far as this can be judged."""
    return row.key in observed.over or (row.key.kind in observed.judged and not _lasts(row, observed))


def _lasts(row: OpenCause, observed: Observation) -> bool:
    return row.key in observed.kept or any(cause.key == row.key for cause in observed.causes)


_open: dict[str, tuple[OpenCause, ...]] = {}
_lock = threading.Lock()


def has_told(replication: str) -> bool:
    return bool(_open.get(replication))


def update_causes(replication: str, decide: Decide) -> Decision:
    with _lock:
        decision = decide(_open.get(replication, ()), datetime.now(UTC))
        _open[replication] = decision.open
    return decision


def take_back_alerts(replication: str, untold: Collection[Alert]) -> None:
    with _lock:
        _open[replication] = taken_back(_open.get(replication, ()), untold)
