"""Restore the watermark store from the ledger: the store is a projection of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.reporting.table import table
from kafka_replication.runs.run import LeasedRun
from kafka_replication.runs.steps.advancing import change_to
from kafka_replication.watermarks.values import Watermark


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """One partition's watermark before and after."""

    before: Watermark | None
    after: Watermark

    def as_json(self) -> dict[str, Any]:
        source = self.after.key.source
        return {
            "topic": source.topic,
            "partition": source.partition,
            "target_topic": self.after.key.target_topic,
            "before": self.before.offset if self.before else None,
            "after": self.after.offset,
            "generation": self.after.generation,
            "version": self.after.version,
        }


def rebuild_store(run: LeasedRun, *, force: bool = False) -> list[Rebuilt]:
    """Store what the ledger says was verified, and no more, for every partition of the replication, or for none.

    The caller holds the replication's lease. Raises Refused where the store is ahead of the ledger: with ``force`` the
    ledger is believed, except for a partition that it does not know at all.
    """
    run.check()
    view, stored = run.view(), run.store.watermarks(run.replication.name)
    ends = {key: view.verified_end(key) for key in view.positions}
    _refuse_unknown(stored, view)
    if not force:
        _refuse_ahead(stored, view, ends)
    changes = [
        change_to(key, position, ends[key], stored.get(key), run.run_id) for key, position in view.positions.items()
    ]
    after = run.store.restore_many(changes)
    return [Rebuilt(stored.get(key), after[key]) for key in sorted(after)]


def _refuse_unknown(stored: Mapping[PartitionKey, Watermark], view: LedgerView) -> None:
    unknown = sorted(stored.keys() - view.positions.keys())
    if unknown:
        raise Refused(
            f"the store knows {', '.join(map(str, unknown))}, the ledger does not: it was lost, or it is another one",
            "bring back the ledger topics of the target, or check the target's connection and the store's url; nothing"
            " was changed",
        )


def _refuse_ahead(stored: Mapping[PartitionKey, Watermark], view: LedgerView, ends: Mapping[PartitionKey, int]) -> None:
    ahead = [
        f"{key} at {mark.offset}, where the ledger verified up to {ends[key]}"
        for key, mark in sorted(stored.items())
        if (mark.generation, mark.offset) > (view.positions[key].generation, ends[key])
    ]
    if ahead:
        raise Refused(
            f"the store is ahead of the ledger: {'; '.join(ahead)}",
            "find out which of the two was changed; if it was the store, add --force, which lowers it. Nothing was"
            " changed",
        )


def rebuilt_table(rows: list[Rebuilt]) -> str:
    head = ("partition", "target", "before", "after", "generation", "version")
    lines = [
        (
            str(each.after.key.source),
            each.after.key.target_topic,
            str(each.before.offset) if each.before else "-",
            str(each.after.offset),
            str(each.after.generation),
            str(each.after.version),
        )
        for each in rows
    ]
    return table(head, lines)
