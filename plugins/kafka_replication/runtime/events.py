"""Log lines that people, alerts and tests look for.

Such a line ends with its id in brackets. The id stays the same when the wording changes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import StrEnum


class Event(StrEnum):
    """The id of an event. It is also the log record's attribute ``event``."""

    COPY_STARTED = "copy-started"
    COPY_ROUND_STARTED = "copy-round-started"
    CHUNK_COMMITTED = "chunk-committed"
    COPY_SESSION_ENDED = "copy-session-ended"
    COPY_FAILED = "copy-failed"
    PROGRESS = "progress"
    MENDED = "mended"
    NOT_MENDED = "not-mended"
    THROTTLED = "throttled"
    ALERT = "alert"
    ALERT_NOT_DELIVERED = "alert-not-delivered"
    FOREIGN_LEDGER_ENTRY = "foreign-ledger-entry"
    MISPLACED_LEDGER_ENTRY = "misplaced-ledger-entry"

    def __str__(self) -> str:
        return f"[{self.value}]"


def log_event(
    log: logging.Logger, level: int, event: Event, message: str, *values: object, fields: Mapping[str, object] = {}
) -> None:
    """Log ``message % values`` and the event's id. The log record has ``fields`` as attributes, for programs."""
    if log.isEnabledFor(level):
        log.log(level, "%s %s", message % values, event, extra={**fields, "event": event}, stacklevel=2)
