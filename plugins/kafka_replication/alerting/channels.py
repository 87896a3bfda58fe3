"""The channels that reach a person: the log, and an Apprise connection. Airflow's notifiers are in `orchestration`."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kafka_replication.alerting.text import Message
from kafka_replication.model.errors import BadInput, NotDelivered
from kafka_replication.runtime import background, extras
from kafka_replication.runtime.events import Event, log_event

log = logging.getLogger(__name__)
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
