"""The text of alerts: one message for all alerts of a replication that are sent at one time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kafka_replication.alerting.values import Alert, AlertEvent, Kind
from kafka_replication.model.times import duration, to_text

PLACES = 10  # places named of each cause; the others are counted

_HEADS = {AlertEvent.OPENED: "ALERT", AlertEvent.REPEATED: "STILL", AlertEvent.HEALED: "OVER"}
_WARNINGS = frozenset({Kind.MISSED, Kind.LAG, Kind.QUARANTINED, Kind.REPAIRED})  # copying goes on


class Severity(StrEnum):
    """The severity of a message, in Apprise's words. The worst comes last."""

    SUCCESS = "success"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses for people: of a run, or else of the replication, by the run's id, and of the replication's page."""

    run: Callable[[str], str] = lambda _: ""
    page: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of one alert, for programs. ``event`` and ``kind`` are stable ids. ``topic`` is empty for a whole
    replication.

    In Airflow's UI, ``link`` is the run, or else the DAG, and ``page`` the replication on the page Replications;
    empty if they are not known.
    """

    replication: str
    kind: str
    event: str
    topic: str
    cause: str
    remedy: str
    run: str
    link: str
    page: str


@dataclass(frozen=True, slots=True)
class Message:
    """The content that a channel sends: one line, the whole text, and the fields for programs."""

    title: str
    text: str
    severity: Severity = Severity.FAILURE
    alerts: tuple[Fields, ...] = ()


def message(replication: str, alerts: Sequence[Alert], links: Links = Links()) -> Message:
    """One message for these alerts, of which there is at least one. The first one gives the title."""
    more = f" (and {len(alerts) - 1} more)" if len(alerts) > 1 else ""
    fields = tuple(
        Fields(
            replication=replication,
            kind=alert.open.key.kind.value,
            event=alert.event.value,
            topic=alert.open.key.subject,
            cause=" ".join(alert.open.cause.what.splitlines()),
            remedy=alert.open.cause.remedy,
            run=alert.open.cause.run_id,
            link=links.run(alert.open.cause.run_id),
            page=links.page,
        )
        for alert in alerts
    )
    blocks = ("\n".join(_lines(alert, shown)) for alert, shown in zip(alerts, fields, strict=True))
    severity = max((_severity(alert) for alert in alerts), key=list(Severity).index)
    return Message(f"{_title(replication, alerts[0])}{more}", "\n\n".join(blocks), severity, fields)


def _severity(alert: Alert) -> Severity:
    if alert.event is AlertEvent.HEALED:
        return Severity.SUCCESS
    return Severity.WARNING if alert.open.key.kind in _WARNINGS else Severity.FAILURE


def _title(replication: str, alert: Alert) -> str:
    over = alert.event is AlertEvent.HEALED
    lasted = f" ({_lasted(alert)})" if over else ""
    return f"{_HEADS[alert.event]} {replication}: {alert.open.key.title(over=over)}{lasted}"


def _lasted(alert: Alert) -> str:
    return duration((alert.at - alert.open.since).total_seconds())


def _lines(alert: Alert, fields: Fields) -> Iterator[str]:
    """The lines for people, then the lines for programs: a name, a colon, and the value."""
    cause = alert.open.cause
    yield _title(fields.replication, alert)
    until = f" until {to_text(alert.at)}" if alert.event is AlertEvent.HEALED else ""
    yield f"since {to_text(alert.open.since)}{until} ({_lasted(alert)})"
    yield f"cause: {fields.cause}"
    if alert.event is not AlertEvent.HEALED:
        if cause.run_id and cause.run_id not in cause.what:
            yield f"run: {cause.run_id}"
        if cause.places:
            others = len(cause.places) - PLACES
            yield f"where: {', '.join(cause.places[:PLACES])}{f' and {others} others' if others > 0 else ''}"
        yield f"remedy: {cause.remedy}"
        for consequence in alert.consequences:
            yield f"also: {consequence.what}"
    if fields.link:
        yield f"link: {fields.link}"
    if fields.page:
        yield f"page: {fields.page}"
    yield f"replication: {fields.replication}"
    yield f"kind: {fields.kind}"
    yield f"event: {fields.event}"
    if fields.topic:
        yield f"topic: {fields.topic}"
