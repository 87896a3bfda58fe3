"""The alerts that this process told while the store was away, by replication. Nothing of it is on a disk."""

from __future__ import annotations

import threading
from collections.abc import Collection
from datetime import UTC, datetime

from kafka_replication.alerting.values import Alert, Decide, Decision, OpenCause, taken_back

_open: dict[str, tuple[OpenCause, ...]] = {}
_lock = threading.Lock()


def has_told(replication: str) -> bool:
    return bool(_open.get(replication))


def update_causes(replication: str, decide: Decide) -> Decision:
    with _lock:
        decision = decide(_open.get(replication, ()), datetime.now(UTC))
        _open[replication] = decision.open
    return decision


def take_back_alerts(replication: str, untold: Collection[Alert]) -> None:
    with _lock:
        _open[replication] = taken_back(_open.get(replication, ()), untold)
