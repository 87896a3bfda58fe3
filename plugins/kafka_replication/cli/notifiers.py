"""Airflow's notifiers as channels of alerts on the command line. Each delivery is a process of its own; see
`orchestration.alerting.notify`.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafka_replication.alerting.channels import WITHOUT_APPRISE, Channel
from kafka_replication.alerting.text import Message
from kafka_replication.config import Replication
from kafka_replication.config.sections.alerts import Notifier
from kafka_replication.model.errors import NotDelivered, ReplicationError
from kafka_replication.planning.findings import Finding
from kafka_replication.runtime import extras

SECONDS = 60.0  # importing Airflow takes some of them
_CHILD = (sys.executable, "-m", "kafka_replication.orchestration.alerting.notify")


@dataclass(frozen=True, slots=True)
class NotifierProcess:
    """One notifier of a replication file."""

    notifier: Notifier

    @property
    def name(self) -> str:
        return f"notifier {self.notifier.class_}"

    def deliver(self, message: Message) -> None:
        if problem := self._ask(message):
            raise problem

    def problem(self) -> ReplicationError | None:
        """The reason why this notifier cannot be used here; None if it can. Sends nothing."""
        return self._ask(None)

    def _ask(self, message: Message | None) -> ReplicationError | None:
        from pydantic import ValidationError

        from kafka_replication.orchestration.alerting.notify import ANSWER, REQUEST, Request

        request = REQUEST.dump_json(Request(self.notifier.class_, self.notifier.arguments, message))
        try:
            done = subprocess.run(_CHILD, input=request, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return NotDelivered(f"it did not end within {SECONDS:.0f} s", "look at what the notifier waits for")
        try:
            return ANSWER.validate_json(done.stdout).problem
        except ValidationError:
            said = done.stderr.decode(errors="replace").strip()[-500:]
            return NotDelivered(f"its process ended with exit code {done.returncode}: {said}", "mend what it says")


def channels(replication: Replication) -> Sequence[Channel]:
    """The notifiers of the replication, in the file's order."""
    return [NotifierProcess(notifier) for notifier in replication.alerts.notifiers]


def findings(replication: Replication) -> Iterator[Finding]:
    """The ways to send alerts that this command line lacks: Apprise, or notifiers."""
    if replication.alerts.apprise and importlib.util.find_spec("apprise") is None:
        yield Finding("error", "alerts.apprise", WITHOUT_APPRISE, extras.install("apprise"))
    for notifier in replication.alerts.notifiers:
        if problem := NotifierProcess(notifier).problem():
            yield Finding("error", "alerts.notifiers", problem.what, problem.remedy)
