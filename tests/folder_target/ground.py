"""A folder as the ground of a conformance suite."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_replication.api import SinkRecord, TargetKind
from kafka_replication.api.targets import LEDGER
from tests.folder_target.journal import Journal, create, line_of, text_of
from tests.folder_target.target import FolderTarget


def new_folder(folder: Path) -> Path:
    """A target without topics."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "journal").touch()
    return folder


@dataclass
class FolderGround:
    folder: Path
    kind: TargetKind = FolderTarget
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.journal = Journal(new_folder(self.folder))

    @property
    def connection(self) -> dict[str, Any]:
        return {"folder": str(self.folder)}

    def create(self, topic: str, partitions: int = 1) -> None:
        create(self.journal, topic, partitions)

    def delete(self, topic: str) -> None:
        self.journal.append({"do": "delete", "topic": topic})

    def limit(self, topic: str, size: int) -> None:
        self.journal.append({"do": "set", "topic": topic, "config": {"max.message.bytes": str(size)}})

    def unlimit(self, topic: str) -> None:
        self.limit(topic, 1 << 30)

    def exists(self, topic: str) -> bool:
        return topic in self.journal.now().topics

    def go_away(self) -> None:
        self.folder.rename(self.folder.with_name("away"))

    def come_back(self) -> None:
        self.folder.with_name("away").rename(self.folder)

    def id_of(self, topic: str) -> str:
        return self.journal.now().topics[topic].id

    def write(self, topic: str, record: SinkRecord) -> None:
        end = self.journal.now().topics[topic].end(0)
        self._commit([line_of(topic, 0, (end, *record[1:]))], [])

    def overwrite(self, topic: str, record: SinkRecord) -> None:
        """Change a record where it stands."""
        self._commit([line_of(topic, 0, record)], [])

    def visible(self, topic: str, partition: int = 0) -> list[tuple[int, SinkRecord]]:
        return sorted(self.journal.now().topics[topic].records.get(partition, {}).items())

    def entries(self, topic: str, partition: int = 0) -> list[bytes | None]:
        return [value for _, _, value in self.journal.now().topics[topic].entries.get(partition, ())]

    def peek(self, topic: str) -> list[bytes | None]:
        return self.entries(topic)

    def put(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        assert topic in LEDGER
        self._commit([], [[topic, partition, text_of(key), text_of(value)]])

    def _commit(self, records: list[Any], entries: list[Any]) -> None:
        self.journal.append({"do": "commit", "by": "", "epoch": 0, "records": records, "entries": entries})
