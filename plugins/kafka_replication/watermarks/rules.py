"""The rules for changes in the watermark store, as pure functions that every store calls inside its transaction."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from kafka_replication.model.errors import Refused, StaleWriter
from kafka_replication.model.times import to_text
from kafka_replication.watermarks.values import Watermark, WatermarkChange


def decide_advance(stored: Watermark | None, change: WatermarkChange, now: datetime) -> Watermark:
    """The watermark to store when a run requests ``change``: ``stored`` itself (nothing changes) or the new one.

    The same generation with the same topic ids and an offset not above the stored one changes nothing, whatever version
    was expected. Any other change must expect the stored version, and only a newer generation may change topic ids or
    move the watermark back. Raises StaleWriter (another run was faster) or Refused (a topic was re-created).
    """
    requested = change.first(now)
    if stored is None:
        return _first(requested, change.expected_version)
    if requested.generation < stored.generation:
        raise StaleWriter(
            f"{requested.key}: generation {requested.generation} is over: {_who(stored)}",
            "run again; it plans with the new generation",
        )
    if requested.generation == stored.generation:
        _same_topics(stored, requested)
        if requested.offset <= stored.offset:
            return stored
    if change.expected_version != stored.version:
        raise StaleWriter(
            f"{requested.key}: {requested.run_id} wants {requested.offset} at version"
            f" {change.expected_version or 'none'}, but {_who(stored)}",
            "run again; it plans from the stored watermark",
        )
    return replace(requested, version=stored.version + 1)


def decide_restore(stored: Watermark | None, change: WatermarkChange, now: datetime) -> Watermark:
    """The watermark of ``change``, higher or lower than ``stored``, with the next version.

    Raises StaleWriter if the stored watermark was moved since it was read.
    """
    requested = change.first(now)
    if stored is None:
        return _first(requested, change.expected_version)
    if replace(requested, version=stored.version, updated_at=stored.updated_at, run_id=stored.run_id) == stored:
        return stored  # also if this call was repeated after an unknown outcome
    if stored.version != change.expected_version:
        raise StaleWriter(
            f"{requested.key}: version {change.expected_version or 'none'} was expected, but {_who(stored)}",
            "run the command again; nothing was changed",
        )
    return replace(requested, version=stored.version + 1)


def _first(requested: Watermark, expected_version: int | None) -> Watermark:
    if expected_version is None:
        return requested
    raise StaleWriter(
        f"{requested.key}: version {expected_version} was expected, but the store holds no watermark: it was lost or"
        " replaced",
        "check the store's url, then rebuild the watermarks from the ledger",
    )


def _same_topics(stored: Watermark, requested: Watermark) -> None:
    for side, had, has in (
        ("source", stored.source_topic_id, requested.source_topic_id),
        ("target", stored.target_topic_id, requested.target_topic_id),
    ):
        if had != has:
            raise Refused(
                f"{requested.key}: the {side} topic was re-created: its id is {has}, but {_who(stored)} for topic id"
                f" {had}",
                "if the new topic is meant, reset the partition, which starts a new generation",
            )


def _who(stored: Watermark) -> str:
    return (
        f"{stored.run_id} stored {stored.offset} (generation {stored.generation}, version {stored.version}) at"
        f" {to_text(stored.updated_at)}"
    )
