"""The ways to send alerts that this command line lacks."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from kafka_replication.alerting.channels import WITHOUT_APPRISE
from kafka_replication.config import Replication
from kafka_replication.model.errors import BadInput
from kafka_replication.orchestration.alerting import notifiers
from kafka_replication.planning.findings import Finding
from kafka_replication.runtime import extras


def findings(replication: Replication) -> Iterator[Finding]:
    """One finding for Apprise if it is missing, and one for each notifier that cannot be used. Sends nothing."""
    if replication.alerts.apprise and importlib.util.find_spec("apprise") is None:
        yield Finding("error", "alerts.apprise", WITHOUT_APPRISE, extras.install("apprise"))
    for notifier in notifiers.channels(replication, {}):
        try:
            notifier.made()
        except BadInput as problem:
            yield Finding("error", "alerts.notifiers", problem.what, problem.remedy)
