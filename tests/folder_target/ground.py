"""A folder as the ground of a conformance suite."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_replication.api import SinkRecord, TargetKind, ToCreate
from tests.conformance.ground import settings_of
from tests.folder_target.target import FolderStore, FolderTarget, Journal, record_of, text_of
from tests.support.journal_ground import JournalGround


@dataclass
class FolderGround(JournalGround):
    folder: Path
    kind: TargetKind = FolderTarget
    lines: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "journal").touch()
        self.lines = Journal(self.folder)

    @property
    def connection(self) -> dict[str, Any]:
        return {"folder": str(self.folder)}

    def shelf(self, replication: str) -> FolderStore:
        return FolderStore(settings_of(self, replication))

    def create(self, topic: str, partitions: int = 1) -> None:
        self.shelf("shop").create(ToCreate(name=topic, partitions=partitions))

    def delete(self, topic: str) -> None:
        self.lines.write((("topic", topic), 0, None))

    def limit(self, topic: str, size: int) -> None:
        _, about = self.lines.now()["topic", topic]
        self.lines.write((("topic", topic), 0, {**about, "config": {"max.message.bytes": str(size)}}))

    def unlimit(self, topic: str) -> None:
        self.limit(topic, 1 << 30)

    def exists(self, topic: str) -> bool:
        return ("topic", topic) in self.lines.now()

    def go_away(self) -> None:
        self.folder.rename(self.folder.with_name("away"))

    def come_back(self) -> None:
        self.folder.with_name("away").rename(self.folder)

    def id_of(self, topic: str) -> str:
        return str(self.lines.now()["topic", topic][1]["id"])

    def write(self, topic: str, record: SinkRecord) -> None:
        end = max((offset for offset, _ in self.visible(topic)), default=-1) + 1
        self.lines.write((("record", topic, 0, "somebody", end), 0, text_of((end, *record[1:]))))

    def overwrite(self, topic: str, record: SinkRecord) -> None:
        """Change a record where it stands, also one that was set aside."""
        for at, (number, value) in list(self.lines.now().items()):
            if at[1] == topic and at[-1] == record[0] and at[0] == "record":
                self.lines.write((at, number, text_of(record)))
            elif at[1] == topic and at[-1] == record[0] and at[0] == "aside":
                self.lines.write((at, number, [value[0], text_of(record), value[2]]))

    def visible(self, topic: str, partition: int = 0) -> list[tuple[int, SinkRecord]]:
        there = [(at, value) for at, (_, value) in self.lines.now().items() if at[:3] == ("record", topic, partition)]
        return sorted((at[4], record_of(value)) for at, value in there if value != "gone")
