"""The step that moves the stored watermarks to what the ledger says is verified."""

from __future__ import annotations

from collections.abc import Collection

from kafka_replication.model.keys import PartitionKey
from kafka_replication.runs.run import LeasedRun
from kafka_replication.runtime import failpoints


def advance(run: LeasedRun, keys: Collection[PartitionKey]) -> dict[PartitionKey, int]:
    """Move each stored watermark to the end of the contiguous verified coverage. Raises StaleWriter."""
    run.check()
    view, stored = run.retry("reading the ledger", run.view), run.store.watermarks(run.replication.name)
    moved: dict[PartitionKey, int] = {}
    for key in sorted(keys):
        position = view.positions.get(key)
        if position is None:
            continue
        before = stored.get(key)
        moved[key] = run.store.advance(
            key,
            generation=position.generation,
            source_topic_id=position.ids.source_topic,
            target_topic_id=position.ids.target_topic,
            offset=view.verified_end(key),
            expected_version=before.version if before else None,
            run_id=run.run_id,
        ).offset
    failpoints.reached("P5")
    return moved
