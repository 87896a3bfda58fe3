"""Airflow's notifiers as channels of alerts."""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_replication.alerting.telling import Message
from kafka_replication.config import Replication
from kafka_replication.model.errors import BadInput, NotDelivered
from kafka_replication.runtime import extras

if TYPE_CHECKING:
    from airflow.sdk import BaseNotifier

TEXT, TITLE, FIELDS = "alert", "alert_title", "alert_fields"  # in a notifier's templates
# The names that notifiers use for the parts of a message. Parts that the file does not give are filled in.
_TITLES = ("subject", "title", "summary")
_TEXTS = ("text", "message", "body", "content", "description")
_HTML = "html_content"
_LOADING = threading.Lock()


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
        """The notifier. Raises BadInput without Airflow, without such a class, or if it does not take the arguments."""
        try:
            base = _base_notifier()
        except ModuleNotFoundError as missing:
            raise BadInput(
                f"{self.path} needs Airflow, and this Python has none ({missing})",
                f"{extras.install('airflow')}; or use alerts.apprise, which needs none",
            ) from missing
        module, _, name = self.path.rpartition(".")
        try:
            kind = getattr(importlib.import_module(module), name)
        except Exception as missing:  # a module that is imported may raise anything
            raise BadInput(
                f"{self.path} cannot be imported: {missing}", "correct alerts.notifiers, or install what it needs"
            ) from missing
        if not (isinstance(kind, type) and issubclass(kind, base)):
            raise BadInput(f"{self.path} is no Airflow notifier", "name a class that derives from BaseNotifier")
        try:
            return kind(**completed(kind, self.arguments))
        except TypeError as wrong:
            raise BadInput(f"{self.path} does not take its arguments: {wrong}", "correct alerts.notifiers") from wrong


def _base_notifier() -> type[BaseNotifier]:
    """Airflow's class. Airflow takes over the logging of a process that imports it, and logs to stdout. A command keeps
    its own handlers, and its stdout for documents.
    """
    with _LOADING:
        if "airflow" not in sys.modules:
            root = logging.getLogger()
            handlers, level = root.handlers[:], root.level
            with redirect_stdout(sys.stderr):
                from airflow.sdk.log import configure_logging

                configure_logging(output=sys.stderr)
            root.handlers[:] = handlers
            root.setLevel(level)
        from airflow.sdk import BaseNotifier

        return BaseNotifier


def completed(kind: type[BaseNotifier], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with the alert for the parts of a message that they do not name."""
    known = inspect.signature(kind.__init__).parameters
    filled = {name: f"{{{{ {TITLE} }}}}" for name in _TITLES if name in known}
    filled |= {name: f"{{{{ {TEXT} }}}}" for name in _TEXTS if name in known}
    if _HTML in known:
        filled[_HTML] = f"<pre>{{{{ {TEXT} | e }}}}</pre>"
    return {**filled, **arguments}


def channels(replication: Replication, context: Mapping[str, Any]) -> Sequence[NotifierChannel]:
    """The notifiers of the replication, in the file's order."""
    return [NotifierChannel(entry.class_, entry.arguments, context) for entry in replication.alerts.notifiers]
