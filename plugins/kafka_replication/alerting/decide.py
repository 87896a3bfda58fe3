"""Decides which causes are open, and which of them to announce now. Pure.

One trouble has one alert. A cause that an open one explains is remembered under it and not announced: when the target
does not answer, runs stall, fail and fall behind. The explaining cause stays open until no cause is left under it. Then
one message says that it is healed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from kafka_replication.alerting.values import (
    Alert,
    AlertEvent,
    Cause,
    CauseKey,
    Decision,
    Kind,
    Observation,
    OpenCause,
)

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
            due[AlertEvent.OPENED] = tuple(way for way in ways if way not in told) if _is_due(row, below, now) else ()
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


def _is_due(row: OpenCause, below: Sequence[OpenCause], now: datetime) -> bool:
    """True once the cause, or one that it explains, has lasted for its own patience. The shortest patience decides."""
    return any((now - other.since).total_seconds() >= other.cause.patience for other in (row, *below))
