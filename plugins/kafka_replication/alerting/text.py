"""The words of alerts: one message for everything that is told about a replication at one time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafka_replication.alerting.values import Alert, Cause, Event
from kafka_replication.model.times import duration, to_text

PLACES = 10  # places named of each cause; the others are counted

_HEADS = {Event.OPENED: "ALERT", Event.REPEATED: "STILL", Event.HEALED: "HEALED"}


@dataclass(frozen=True, slots=True)
class Message:
    """What the channels send: one line, and the whole text."""

    title: str
    text: str


def message(replication: str, alerts: Sequence[Alert]) -> Message:
    """One message for these alerts, of which there is at least one. The first one gives the title."""
    first = alerts[0]
    more = f" (and {len(alerts) - 1} more)" if len(alerts) > 1 else ""
    title = f"{_HEADS[first.event]} {replication}: {first.open.key.title}{more}"
    return Message(title, "\n\n".join("\n".join(_lines(replication, alert)) for alert in alerts))


def _lines(replication: str, alert: Alert) -> Iterator[str]:
    row = alert.open
    yield f"{_HEADS[alert.event]} {replication}: {row.key.title} [{row.key.kind}]"
    yield f"since {to_text(row.since)} ({duration((alert.at - row.since).total_seconds())})"
    if alert.event is Event.HEALED:
        yield f"it was: {row.cause.what}"
        return
    yield from _cause(row.cause)
    for consequence in alert.consequences:
        yield f"also: {consequence.what}"


def _cause(cause: Cause) -> Iterator[str]:
    yield cause.what
    if cause.run_id and cause.run_id not in cause.what:
        yield f"run: {cause.run_id}"
    if cause.places:
        others = len(cause.places) - PLACES
        yield f"where: {', '.join(cause.places[:PLACES])}{f' and {others} others' if others > 0 else ''}"
    yield f"remedy: {cause.remedy}"
