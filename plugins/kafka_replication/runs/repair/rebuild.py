"""Rebuild the watermarks in the store from the ledger. The store is a projection of the ledger."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_replication.documents import place
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.reporting.ledger import RebuiltRow
from kafka_replication.reporting.table import table
from kafka_replication.runs.replicate.advancing import change_to
from kafka_replication.runs.run import LeasedRun
from kafka_replication.watermarks.values import Watermark


def rebuild_store(run: LeasedRun, *, force: bool = False) -> list[RebuiltRow]:
    """Set every watermark of the replication to the verified end in the ledger, or change none of them.

    Raises Refused if the store is ahead of the ledger. ``force`` lowers such watermarks, but a partition that is not in
    the ledger at all is still refused.
    """
    run.check()
    view, stored = run.view(), run.store.watermarks(run.replication.name)
    ends = {key: view[key].watermark() for key in view.positions}
    _refuse_unknown(stored, view)
    if not force:
        _refuse_ahead(stored, view, ends)
    changes = [
        change_to(key, position, ends[key], stored.get(key), run.run_id) for key, position in view.positions.items()
    ]
    return [
        RebuiltRow(
            **place(key),
            before=stored[key].offset if key in stored else None,
            after=after.offset,
            generation=after.generation,
            version=after.version,
        )
        for key, after in sorted(run.store.restore_many(changes).items())
    ]


def _refuse_unknown(stored: Mapping[PartitionKey, Watermark], view: LedgerView) -> None:
    unknown = sorted(stored.keys() - view.positions.keys())
    if unknown:
        raise Refused(
            f"the store knows {', '.join(map(str, unknown))}, the ledger does not: it was lost or is another one",
            "restore the ledger topics of the target, or check the target's connection and the store's url; nothing"
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
            "find out which of the two was changed; if it was the store, add --force to lower it. Nothing was changed",
        )


def rebuilt_table(rows: list[RebuiltRow]) -> str:
    head = ("partition", "target", "before", "after", "generation", "version")
    lines = [
        (
            str(row.source),
            row.target_topic,
            "-" if row.before is None else str(row.before),
            str(row.after),
            str(row.generation),
            str(row.version),
        )
        for row in rows
    ]
    return table(head, lines)
