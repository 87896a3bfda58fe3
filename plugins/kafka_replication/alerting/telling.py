"""The text of alerts: one message for all alerts of a replication that are sent at one time.

The channels that reach a person: the log, and an Apprise connection. Airflow's notifiers are in `orchestration`.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol

from kafka_replication.alerting.open_causes import Alert, AlertEvent, Kind
from kafka_replication.model.errors import BadInput, NotDelivered
from kafka_replication.model.times import duration, to_text
from kafka_replication.runtime import background, extras
from kafka_replication.runtime.events import Event, log_event

log = logging.getLogger(__name__)

PLACES = 10  # places named of each cause; the others are counted

_HEADS = {AlertEvent.OPENED: "ALERT", AlertEvent.REPEATED: "STILL", AlertEvent.HEALED: "OVER"}
_WARNINGS = frozenset(  # copying goes on
    {Kind.MISSED, Kind.LAG, Kind.DRILL_WORSE, Kind.DRILL_OVERDUE, Kind.QUARANTINED, Kind.REPAIRED}
)


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


WITHOUT_APPRISE = "apprise is not installed, which sends to the connection of alerts.apprise"


class Channel(Protocol):
    """One way to reach a person."""

    @property
    def name(self) -> str: ...

    def deliver(self, message: Message) -> None:
        """Raises NotDelivered. An error never holds a secret of the address."""


@dataclass(frozen=True, slots=True)
class LogChannel:
    """Used when the file names nobody. It sends nothing, because every alert is logged anyway."""

    name: str = "log"

    def deliver(self, message: Message) -> None:
        """Do nothing: `deliver` below logs every alert."""


class AppriseChannel:
    """Sends to every address of one connection. Addresses hold secrets, so that messages name their schemes only."""

    def __init__(self, connection_id: str, addresses: Callable[[], Sequence[str]]) -> None:
        self._name = f"apprise connection {connection_id!r}"
        self._addresses = addresses  # looked up when there is an alert to send

    @property
    def name(self) -> str:
        return self._name

    def deliver(self, message: Message) -> None:
        """Try every address. Raises NotDelivered only if all failed: sent again, the alert would come twice. Raises
        BadInput without Apprise.
        """
        if importlib.util.find_spec("apprise") is None:
            raise BadInput(WITHOUT_APPRISE, extras.install("apprise"))
        addresses = self._addresses()
        failed = [_scheme(address) for address in addresses if not self._send(address, message)]
        if not failed:
            return
        problem = NotDelivered(
            f"{len(failed)} of {len(addresses)} addresses took no alert: {', '.join(failed)}",
            "check these addresses in the connection's extra, and that this host reaches them",
        )
        if len(failed) == len(addresses):
            raise problem
        log_event(
            log,
            logging.ERROR,
            Event.ALERT_NOT_DELIVERED,
            "an alert was not delivered by a part of %s: %s",
            self.name,
            problem,
        )

    def _send(self, address: str, message: Message) -> bool:
        logging.getLogger("apprise").setLevel(logging.CRITICAL)  # its messages may name addresses
        import apprise

        sender = apprise.Apprise()
        if not sender.add(address):
            log.error("%s: an address of the scheme %s is none that Apprise can use", self.name, _scheme(address))
            return False
        try:
            return bool(
                sender.notify(
                    title=message.title,
                    body=message.text,
                    body_format=apprise.NotifyFormat.TEXT,
                    notify_type=apprise.NotifyType(message.severity.value),
                )
            )
        except Exception:  # noqa: BLE001 - a sender that breaks must not keep the other addresses silent
            return False


def make_ready() -> None:
    """Load Apprise with its senders, before anybody counts the seconds: on a busy machine this alone takes some."""
    if importlib.util.find_spec("apprise") is not None:
        import apprise

        apprise.Apprise().add("json://localhost")


def _scheme(address: str) -> str:
    scheme, separator, _ = address.partition("://")
    return f"{scheme}://" if separator else "(no scheme)"


def by_name(channels: Sequence[Channel]) -> dict[str, Channel]:
    """The channels by their names. A second one of the same name gets a number, because each counts for itself."""
    named = dict[str, Channel]()
    for channel in channels:
        same = sum(other.name == channel.name for other in named.values())
        named[f"{channel.name} ({same + 1})" if same else channel.name] = channel
    return named


def deliver(channels: Mapping[str, tuple[Channel, Message]], whole: Message, seconds: float) -> frozenset[str]:
    """Send each channel its message, all at the same time, then log the ``whole``. Returns the names of the channels
    that took it. A channel that needs more than ``seconds`` is left behind.

    Raises nothing: the errors are logged.
    """
    sendings = {
        name: background.begin(partial(channel.deliver, message), "alert")
        for name, (channel, message) in channels.items()
    }
    wait(sendings.values(), seconds)
    ends = {name: _problem(sending, seconds) for name, sending in sendings.items()}
    took = [name for name, problem in ends.items() if problem is None]
    sent = f"sent by {', '.join(took)}" if took else "sent to nobody"
    log_event(log, logging.WARNING, Event.ALERT, "%s\n%s\n(%s)\n", whole.title, whole.text, sent)
    for name, problem in ends.items():
        if problem is not None:
            text = "an alert was not delivered by %s: %s"
            log_event(log, logging.ERROR, Event.ALERT_NOT_DELIVERED, text, name, problem)
    return frozenset(took)


def _problem(sending: Future[None], seconds: float) -> BaseException | None:
    """The reason why the alert is not delivered; None if it is. An error in one channel does not stop the others."""
    if sending.done():
        return sending.exception()
    return NotDelivered(f"it did not end within {seconds:.0f} s", "look at what the address waits for")
