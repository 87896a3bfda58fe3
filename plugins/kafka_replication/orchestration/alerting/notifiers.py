"""Airflow's notifiers as channels of alerts."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow.sdk import BaseNotifier

from kafka_replication.alerting.channels import Channel
from kafka_replication.alerting.text import Message
from kafka_replication.config import Replication
from kafka_replication.model.errors import BadInput, NotDelivered

TEXT, TITLE, FIELDS = "alert", "alert_title", "alert_fields"  # in a notifier's templates
# The names that notifiers use for the parts of a message. Parts that the file does not give are filled in.
_TITLES = ("subject", "title", "summary")
_TEXTS = ("text", "message", "body", "content", "description")
_HTML = "html_content"


@dataclass(frozen=True, slots=True)
class NotifierChannel:
    """One notifier of a replication file. ``context`` is that of the task that sends the alert."""

    path: str
    arguments: Mapping[str, Any] = field(repr=False)
    context: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        return f"notifier {self.path}"

    def deliver(self, message: Message) -> None:
        try:
            notifier = self.made()
            fields = [asdict(alert) for alert in message.alerts]
            context: Any = {**self.context, TEXT: message.text, TITLE: message.title, FIELDS: fields}
            # The action of a notifier without its own error handling, which would hide the errors.
            notifier._update_context(context)
            notifier.render_template_fields(context)
            notifier.notify(context)
        except BadInput:
            raise
        except Exception as problem:
            raise NotDelivered(
                f"{type(problem).__name__}: {problem}", "check the notifier's arguments and its connection"
            ) from problem

    def made(self) -> BaseNotifier:
        """The notifier. Raises BadInput if there is no such class, or if it does not take the arguments."""
        module, _, name = self.path.rpartition(".")
        try:
            kind = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as missing:
            raise BadInput(
                f"{self.path} cannot be imported: {missing}", "correct alerts.notifiers, or install what it needs"
            ) from missing
        if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
            raise BadInput(f"{self.path} is no Airflow notifier", "name a class that derives from BaseNotifier")
        try:
            return kind(**completed(kind, self.arguments))
        except TypeError as wrong:
            raise BadInput(f"{self.path} does not take its arguments: {wrong}", "correct alerts.notifiers") from wrong


def completed(kind: type[BaseNotifier], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with the alert for the parts of a message that they do not name."""
    known = inspect.signature(kind.__init__).parameters
    filled = {name: f"{{{{ {TITLE} }}}}" for name in _TITLES if name in known}
    filled |= {name: f"{{{{ {TEXT} }}}}" for name in _TEXTS if name in known}
    if _HTML in known:
        filled[_HTML] = f"<pre>{{{{ {TEXT} | e }}}}</pre>"
    return {**filled, **arguments}


def channels(replication: Replication, context: Mapping[str, Any]) -> Sequence[Channel]:
    """The notifiers of the replication, in the file's order."""
    return [NotifierChannel(entry.class_, entry.arguments, context) for entry in replication.alerts.notifiers]
