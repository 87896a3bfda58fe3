"""``python -m kafka_replication.orchestration.alerting.notify``: sends one alert by one notifier, outside of Airflow.

It is a separate process, because Airflow takes over the logging of a process that imports it. stdin has a `Request`,
stdout gets an `Answer` and nothing else: Airflow's output goes to stderr.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Any

from kafka_replication.alerting.text import Message
from kafka_replication.model.errors import BadInput, NotDelivered, ReplicationError
from kafka_replication.runtime import extras
from kafka_replication.runtime.private_json import deferred, private


@dataclass(frozen=True, slots=True)
class Request:
    """A notifier and its message. Without a ``message`` the notifier is only created, and sends nothing."""

    path: str
    arguments: dict[str, Any] = field(repr=False)
    message: Message | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The error of the delivery; empty if there was none. ``retriable``: the same call may succeed later."""

    what: str = ""
    remedy: str = ""
    retriable: bool = False

    @property
    def problem(self) -> ReplicationError | None:
        if not self.what:
            return None
        return NotDelivered(self.what, self.remedy) if self.retriable else BadInput(self.what, self.remedy)


REQUEST = private(Request)
ANSWER = deferred(Answer)


def answer(request: Request) -> Answer:
    try:
        from kafka_replication.orchestration.alerting.notifiers import NotifierChannel
    except ModuleNotFoundError as missing:
        return Answer(
            f"{request.path} needs Airflow, and this Python has none ({missing})",
            f"{extras.install('airflow')}; or use alerts.apprise, which needs none",
        )
    channel = NotifierChannel(request.path, request.arguments, {})
    try:
        if request.message is None:
            channel.made()
        else:
            channel.deliver(request.message)
    except ReplicationError as problem:
        return Answer(problem.what, problem.remedy, problem.retriable)
    return Answer()


def main() -> None:
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Airflow logs to stdout
        out.write(ANSWER.dump_json(answer(REQUEST.validate_json(sys.stdin.read()))))


if __name__ == "__main__":
    main()
