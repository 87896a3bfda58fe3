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
    wanted = change.first(now)
    if stored is None:
        return _first(wanted, change.expected_version)
    if wanted.generation < stored.generation:
        raise StaleWriter(
            f"{wanted.key}: generation {wanted.generation} is over: {_who(stored)}",
            "run again; it plans with the new generation",
        )
    if wanted.generation == stored.generation:
        _same_topics(stored, wanted)
        if wanted.offset <= stored.offset:
            return stored
    if change.expected_version != stored.version:
        raise StaleWriter(
            f"{wanted.key}: {wanted.run_id} wants {wanted.offset} at version {change.expected_version or 'none'}, but"
            f" {_who(stored)}",
            "run again; it plans from the stored watermark",
        )
    return replace(wanted, version=stored.version + 1)


def decide_restore(stored: Watermark | None, change: WatermarkChange, now: datetime) -> Watermark:
    """The watermark of ``change``, higher or lower than ``stored``, with the next version.

    Raises StaleWriter if the stored watermark was moved since it was read.
    """
    wanted = change.first(now)
    if stored is None:
        return _first(wanted, change.expected_version)
    if replace(wanted, version=stored.version, updated_at=stored.updated_at, run_id=stored.run_id) == stored:
        return stored  # also if this call was repeated after an unknown outcome
    if stored.version != change.expected_version:
        raise StaleWriter(
            f"{wanted.key}: version {change.expected_version or 'none'} was expected, but {_who(stored)}",
            "run the command again; nothing was changed",
        )
    return replace(wanted, version=stored.version + 1)


def _first(wanted: Watermark, expected_version: int | None) -> Watermark:
    if expected_version is None:
        return wanted
    raise StaleWriter(
        f"{wanted.key}: version {expected_version} was expected, but the store holds no watermark: it was lost or"
        " replaced",
        "check the store's url, then rebuild the watermarks from the ledger",
    )


def _same_topics(stored: Watermark, wanted: Watermark) -> None:
    for side, had, has in (
        ("source", stored.source_topic_id, wanted.source_topic_id),
        ("target", stored.target_topic_id, wanted.target_topic_id),
    ):
        if had != has:
            raise Refused(
                f"{wanted.key}: the {side} topic was re-created: its id is {has}, but {_who(stored)} for topic id"
                f" {had}",
                "if the new topic is meant, reset the partition, which starts a new generation",
            )


def _who(stored: Watermark) -> str:
    return (
        f"{stored.run_id} stored {stored.offset} (generation {stored.generation}, version {stored.version}) at"
        f" {to_text(stored.updated_at)}"
    )
