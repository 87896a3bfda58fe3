"""Moving one watermark, for tests: what is stored afterwards, or the error."""

from __future__ import annotations

from typing import Any

from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.store.watermark_store import WatermarkStore
from kafka_replication.watermarks.values import Watermark, WatermarkChange

IDS = {"source_topic_id": "source-id", "target_topic_id": "target-id"}


def change(key: PartitionKey, offset: int, version: int | None, **others: Any) -> WatermarkChange:
    values = {"generation": 1, "run_id": "run-1", **IDS, **others}
    return WatermarkChange(key=key, offset=offset, expected_version=version, **values)


def advance(store: WatermarkStore, key: PartitionKey, offset: int, version: int | None, **others: Any) -> Watermark:
    """Raises StaleWriter, Refused."""
    result = store.advance_many([change(key, offset, version, **others)])[key]
    if isinstance(result, Refused):
        raise result
    return result


def restore(store: WatermarkStore, key: PartitionKey, offset: int, version: int | None, **others: Any) -> Watermark:
    """Raises StaleWriter."""
    return store.restore_many([change(key, offset, version, **others)])[key]


def somebody_moves(store: WatermarkStore, key: PartitionKey, offset: int) -> Watermark:
    """The watermark as somebody who is no run moves it, by hand."""
    mark = store.watermarks(key.replication)[key]
    same = {name: getattr(mark, name) for name in ("generation", "source_topic_id", "target_topic_id")}
    return advance(store, key, offset, mark.version, **same, run_id="somebody")
