"""Rows of `status`."""

from __future__ import annotations

from typing import Any

from kafka_replication.documents import StatusRow
from kafka_replication.model.offsets import Coverage


def status_row(**fields: Any) -> StatusRow:
    """A row of orders-0, in sync, with these fields instead."""
    usual: dict[str, Any] = {
        "topic": "orders",
        "partition": 0,
        "target_topic": "orders",
        "state": "in sync",
        "in_store": True,
        "log_start": 0,
        "source_end": 1_000_000,
        "high_watermark": 1_000_000,
        "withheld": 0,
        "position": 1_000_000,
        "watermark": 1_000_000,
        "lag": 0,
        "lag_seconds": 0.0,
        "removed": 0,
        "no_longer_on_target": Coverage(),
        "missed": Coverage(),
        "last_verified": "2026-05-04T12:00:00.000Z",
        "verified_by": "digest",
        "delivery": "exactly_once",
        "lost_in_delivery": 0,
        "duplicates": 0,
        "superseded": 0,
        "lost": 0,
        "quarantined": 0,
        "skipped": 0,
        "undecided": 0,
        "gaps": (),
        "error": None,
        "remedy": None,
        "lost_in_seconds": None,
    }
    return StatusRow(**usual | fields)
