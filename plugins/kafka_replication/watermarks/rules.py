"""What may change in the watermark store, decided purely: every store asks these functions inside its transaction."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from kafka_replication.model.errors import Busy, Refused, StaleWriter
from kafka_replication.model.times import to_text
from kafka_replication.watermarks.values import Lease, Watermark


def settle(stored: Watermark | None, wanted: Watermark, expected_version: int | None) -> Watermark:
    """What has to be stored once somebody asks for ``wanted``: ``stored`` itself (nothing changes) or ``wanted``.

    The same generation with the same topic ids and an offset not above the stored one changes nothing, whatever version
    was expected. Anything else needs the stored version, and only a newer generation may change ids or go back.
    Raises StaleWriter (somebody else was here first) or Refused (a topic was re-created).
    """
    if stored is None:
        if expected_version is None:
            return wanted
        raise StaleWriter(
            f"{wanted.key}: version {expected_version} was expected, but the store holds no watermark: it was lost or"
            " replaced",
            "check the store's url, then rebuild the watermarks from the ledger",
        )
    if wanted.generation < stored.generation:
        raise StaleWriter(
            f"{wanted.key}: generation {wanted.generation} is over: {_who(stored)}",
            "run again; it plans with the new generation",
        )
    if wanted.generation == stored.generation:
        _same_topics(stored, wanted)
        if wanted.offset <= stored.offset:
            return stored
    if expected_version != stored.version:
        raise StaleWriter(
            f"{wanted.key}: {wanted.run_id} wants {wanted.offset} at version {expected_version or 'none'}, but"
            f" {_who(stored)}",
            "run again; it plans from the stored watermark",
        )
    return replace(wanted, version=stored.version + 1)


def settle_restored(stored: Watermark | None, wanted: Watermark, expected_version: int | None) -> Watermark:
    """``wanted`` whatever was stored, as long as nobody moved it since it was read; versions only move forward.

    Raises StaleWriter.
    """
    if stored is None:
        return settle(stored, wanted, expected_version)
    if stored.version != expected_version:
        raise StaleWriter(
            f"{wanted.key}: version {expected_version or 'none'} was expected, but {_who(stored)}", "look again"
        )
    same = replace(wanted, version=stored.version, updated_at=stored.updated_at, run_id=stored.run_id) == stored
    return stored if same else replace(wanted, version=stored.version + 1)


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


def settle_lease(stored: Lease | None, held: bool, wanted: Lease, now: datetime) -> Lease:
    """The lease to store when ``wanted.owner`` asks; ``stored`` is the last one, ``held`` says that it was not given
    back.

    Its own owner renews it under the same token, expired or not: nobody had it in between.
    Anybody else waits until it is given back or expired, and gets the next token. Raises Busy naming holder and expiry.
    """
    if stored is None:
        return wanted
    if held and stored.owner == wanted.owner:
        return replace(stored, expires_at=wanted.expires_at)
    if held and stored.expires_at > now:
        raise Busy(
            f"{stored.replication} is being worked on by {stored.owner}, whose lease ends {to_text(stored.expires_at)}"
            " unless renewed",
            "wait for that run, or stop it; a dead run's lease ends by itself",
        )
    return replace(wanted, token=stored.token + 1)


def lost(lease: Lease, holder: Lease | None) -> Busy:
    """The error of somebody who thought to hold ``lease`` while the store knows ``holder`` (None: given back)."""
    state = f"{holder.owner} took it {to_text(holder.acquired_at)}" if holder else "it was given back"
    return Busy(
        f"{lease.owner} no longer holds the lease of {lease.replication}: {state}",
        "let the other run finish, then run again",
    )


def _who(stored: Watermark) -> str:
    return (
        f"{stored.run_id} stored {stored.offset} (generation {stored.generation}, version {stored.version}) at"
        f" {to_text(stored.updated_at)}"
    )
