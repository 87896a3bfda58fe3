"""Measures the effect of the brokers' quotas: librdkafka reports how long a broker makes a client wait."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import ThrottleEvent

from kafka_replication.runtime.events import Event, log_event

log = logging.getLogger(__name__)
SAY_EVERY = 10.0  # seconds


class Throttling:
    """Adds up the seconds that one cluster makes one task wait. Clients call it when they are polled."""

    def __init__(self, what: str, side: str) -> None:
        self._what, self._side = what, side
        self.seconds = 0.0
        self._said = 0.0

    def listening(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The client settings with this as their callback, unless the connection has its own."""
        return {"throttle_cb": self, **config}

    def __call__(self, event: ThrottleEvent) -> None:
        self.add(event.throttle_time, f"{event.broker_id} ({event.broker_name})")

    def add(self, seconds: float, broker: str) -> None:
        self.seconds += seconds
        if seconds and time.monotonic() - self._said >= SAY_EVERY:
            self._said = time.monotonic()
            message = "%s: a quota of the %s makes this client wait: %.1f s for broker %s, %.1f s so far"
            log_event(
                log, logging.INFO, Event.THROTTLED, message, self._what, self._side, seconds, broker, self.seconds
            )
