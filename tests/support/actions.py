"""What many tests do to a scenario, and what they look at."""

from __future__ import annotations

import json
import shutil
from typing import Any

from kafka_replication.ledger import codec
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS, Gap, Position, Verified
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runs import repair
from kafka_replication.runs.repair import Approval
from kafka_replication.store import open_store
from tests.support.checker import read
from tests.support.scenario import Rec, Scenario, numbered

Table = dict[Any, tuple[int, int, str, str]]


def copied_once(scene: Scenario, count: int = 50, partitions: int = 1) -> None:
    """A first run that went well."""
    scene.source.create(scene.topic, partitions)
    for partition in range(partitions):
        scene.source.produce(scene.topic, numbered(count), partition)
    assert scene.run().outcome == "done"


def approve(scene: Scenario, from_: int, until: int, partition: int = 0) -> tuple[Gap, bool]:
    asked = Approval(
        at=TopicPartition(scene.topic, partition),
        range=OffsetRange(from_, until),
        reason="retention was too short",
        by="ann",
    )
    return repair.approve(scene.bare_run("approving"), asked)


def table(scene: Scenario) -> Table:
    return {
        key: (m.offset, m.generation, m.source_topic_id, m.target_topic_id)
        for key, m in scene.store.watermarks(scene.name).items()
    }


def replace_store(scene: Scenario, backup: str | None = None) -> None:
    """Empty it, or bring back a backup."""
    scene.store.close()
    for file in scene.folder.glob("store.db*"):
        file.unlink()
    if backup:
        shutil.copytree(backup, scene.folder, dirs_exist_ok=True)
    scene.store = open_store(scene.store_url)


def position_entry(scene: Scenario) -> bytes:
    """The value of a replication's position in the ledger, read without the product."""
    wanted, found = scene.key().entry("position"), b""
    for _, record in read(scene.target.bootstrap, POSITIONS, scene.key().ledger_partition):
        if record.key == wanted:
            found = record.value or b""
    return found


def receipts_of(scene: Scenario, partition: int = 0) -> dict[int, tuple[bytes, dict[str, Any]]]:
    """First offset -> key and value of a partition's receipts, read without the product."""
    # The ledger is shared with tests that write what is not even JSON into it.
    found = {}
    for _, record in read(scene.target.bootstrap, RECEIPTS, scene.key(partition).ledger_partition):
        if record.key and record.value and scene.name.encode() in record.key:
            key = json.loads(record.key)
            if key[1:5] == [scene.name, scene.topic, partition, scene.topic]:
                found[key[6]] = (record.key, json.loads(record.value))
    return found


def put_receipt(scene: Scenario, key: bytes, value: dict[str, Any] | None, partition: int = 0) -> None:
    content = None if value is None else json.dumps(value).encode()
    scene.target.produce(RECEIPTS, [Rec(key, content)], scene.key(partition).ledger_partition)


def put(scene: Scenario, entry: Position | Verified, **changes: Any) -> None:
    """The entry with these fields in its JSON, as somebody writes it by hand."""
    key = scene.key().entry("position") if isinstance(entry, Position) else scene.key().entry("verified")
    value = json.loads(codec.encode(entry)) | changes
    scene.target.produce(POSITIONS, [Rec(key, json.dumps(value).encode())], scene.key().ledger_partition)
