"""Looks for causes of alerts from a test, with real ways to tell them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kafka_replication.alerting.open_causes import Decision
from kafka_replication.runs.watching import Watcher
from kafka_replication.store import open_store
from tests.support.received import Inbox
from tests.support.scenario import Scenario


def watcher(scene: Scenario, received: Inbox, **more: Any) -> Watcher:
    alerts = {"apprise": "oncall", **more.pop("alerts", {})}
    return Watcher(
        replication=scene.replication(alerts=alerts, **more),
        connections=replace(scene.connections, alerts=received.addresses),
        open_store=lambda: open_store(scene.store_url),
        lasts=True,
    )


def events(decision: Decision) -> list[str]:
    return [f"{alert.event} {alert.open.key}" for alert in decision.alerts]
