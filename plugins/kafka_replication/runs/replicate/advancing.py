"""The step that moves the stored watermarks to the verified ends in the ledger."""

from __future__ import annotations

from collections.abc import Collection

from kafka_replication.ledger.entries import Position
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.runs.run import LeasedRun
from kafka_replication.runtime import failpoints
from kafka_replication.watermarks.values import Watermark, WatermarkChange


def advance(run: LeasedRun, keys: Collection[PartitionKey], view: LedgerView | None = None) -> dict[PartitionKey, int]:
    """Move each stored watermark to the end of the contiguous verified coverage in ``view``; None: the ledger now.

    Raises StaleWriter or Refused, which names the watermarks that cannot be moved, after all others were moved.
    """
    view = run.retry("reading the ledger", run.view) if view is None else view
    moved, refused = advance_each(run, keys, view)
    if refused:
        first = next(iter(refused.values()))
        raise type(first)("; ".join(error.what for error in refused.values()), first.remedy)
    return moved


def advance_each(
    run: LeasedRun, keys: Collection[PartitionKey], view: LedgerView
) -> tuple[dict[PartitionKey, int], dict[PartitionKey, Refused]]:
    """As `advance`, with the reason for each watermark that cannot be moved."""
    run.check()
    stored = run.store.watermarks(run.replication.name)
    results = run.store.advance_many(
        [
            change_to(key, view.positions[key], view[key].watermark(), stored.get(key), run.run_id)
            for key in sorted(view.positions.keys() & set(keys))
        ]
    )
    failpoints.reached("P5")
    return (
        {key: mark.offset for key, mark in results.items() if isinstance(mark, Watermark)},
        {key: mark for key, mark in results.items() if isinstance(mark, Refused)},
    )


def change_to(
    key: PartitionKey, position: Position, offset: int, before: Watermark | None, run_id: str
) -> WatermarkChange:
    """Move the watermark ``before`` to ``offset``, with the ids and the generation of the ledger's position."""
    return WatermarkChange(
        key=key,
        generation=position.generation,
        source_topic_id=position.ids.source_topic,
        target_topic_id=position.ids.target_topic,
        offset=offset,
        expected_version=before.version if before else None,
        run_id=run_id,
    )
