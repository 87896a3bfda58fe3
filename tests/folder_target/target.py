"""A folder as the target of a replication: ``target: {type: "tests.folder_target.target:FolderTarget", ...}``.

Everything is in one file, ``journal``, whose lines are written under a lock: each is whole or not there. A line has
values that are written together, each at a key and with a number: of two values of one key the higher number counts,
whichever was written last. So what a session that was replaced still writes changes nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import uuid
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from kafka_replication.api import (
    BadInput,
    Failure,
    FailureKind,
    GapFound,
    OffsetRange,
    PartitionKey,
    Position,
    Refused,
    SinkRecord,
    TargetSettings,
    ToCreate,
    Unreachable,
)
from kafka_replication.api.targets import (
    LEDGER_PLACE,
    Aside,
    ClusterName,
    Description,
    Head,
    Item,
    LedgerRecord,
    Login,
    Place,
    Records,
    RecordStore,
    Resend,
    StoredTarget,
    size_of,
)

Key = tuple[Any, ...]  # its first part says of what kind the value is, its second one mostly the topic
OF_TOPICS = ("topic", "record", "aside")
Write = tuple[Key, int, Any]  # key, number, value; without a value it is forgotten, and all that the topic has


class Journal:
    """What the file says. Each object reads on where it has stopped."""

    def __init__(self, folder: Path) -> None:
        self._path, self._read = folder / "journal", 0
        self._values, self._lock = dict[Key, tuple[int, Any]](), threading.RLock()

    def now(self) -> dict[Key, tuple[int, Any]]:
        """A copy of what is there now, by its key each number and value. Raises Unreachable if the folder is gone."""
        try:
            with self._lock, self._path.open("rb") as file:
                file.seek(self._read)
                lines, end, _ = file.read().rpartition(b"\n")  # what is not whole is not there
                for line in lines.splitlines():
                    for key, number, value in json.loads(line):
                        self._take(tuple(key), number, value)
                self._read += len(lines + end)
                return dict(self._values)
        except OSError as error:
            raise Unreachable(f"the folder {self._path.parent} does not answer: {error}", "bring it back") from error

    def _take(self, key: Key, number: int, value: Any) -> None:
        if number < self._values.get(key, (number,))[0]:
            return
        self._values[key] = number, value
        if value is None:
            gone = (key[1],) if key[0] == "topic" else ()
            for at in [at for at in self._values if at == key or (at[0] in OF_TOPICS and at[1] in gone)]:
                del self._values[at]

    def append(self, writes: Iterable[Write], check: Callable[[dict[Key, tuple[int, Any]]], bool]) -> bool:
        """Write a line if ``check`` of what is there is true: nobody else writes meanwhile."""
        self.now()
        with self._lock, self._path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not check(self.now()):
                return False
            file.truncate(self._read)  # what somebody has left who died while writing
            file.seek(self._read)
            file.write(json.dumps(list(writes)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            self.now()
            return True

    def write(self, *writes: Write) -> None:
        self.append(writes, lambda values: True)


def text_of(record: SinkRecord) -> list[Any]:
    def text(content: bytes | None) -> str | None:
        return None if content is None else b64encode(content).decode()

    offset, timestamp, key, value, headers = record
    return [offset, timestamp, text(key), text(value), [[name, text(content)] for name, content in headers or ()]]


def record_of(text: Sequence[Any]) -> SinkRecord:
    def bytes_of(content: str | None) -> bytes | None:
        return None if content is None else b64decode(content)

    offset, timestamp, key, value, headers = text
    return offset, timestamp, bytes_of(key), bytes_of(value), [(n, bytes_of(c)) for n, c in headers] or None


class FolderRecords(Records):
    """At the key ``record``, topic, partition, who wrote it, offset."""

    def __init__(self, key: PartitionKey, position: Position | None, journal: Journal) -> None:
        super().__init__(key, position)
        self._journal, self._owner = journal, f"{key.replication}/{self.generation}"
        self._part = ("record", key.target_topic, key.source.partition)

    def item(self, record: SinkRecord, number: int) -> Item:
        return Item(record[0], ((*self._part, self._owner, record[0]), number, text_of(record)), size_of(record))

    def removal(self, offset: int, number: int) -> Item:
        return Item(offset, ((*self._part, self._owner, offset), number, "gone"), 0)

    def write(self, items: Sequence[Item], resend: Resend) -> tuple[Failure, ...]:
        topic = ("topic", self.key.target_topic)
        if topic not in (values := self._journal.now()):
            raise Refused(f"{self.key.target_topic} on the target was deleted", "plan again")
        most = int(values[topic][1]["config"].get("max.message.bytes", 1 << 30))
        self._journal.write(*(item.request for item in items if item.size <= most))
        return tuple(
            Failure(item.offset, FailureKind.TOO_LARGE, f"its {item.size} bytes are too many", "MSG_SIZE_TOO_LARGE")
            for item in items
            if item.size > most
        )

    def _there(self, owned: bool) -> list[SinkRecord]:
        if ("topic", self.key.target_topic) not in (values := self._journal.now()):
            raise GapFound(f"{self.key.target} on the target is gone", "restore it")
        there = [(at, value) for at, (_, value) in values.items() if at[:3] == self._part and value != "gone"]
        found = (record_of(value) for at, value in there if (at[3] == self._owner) == owned)
        return sorted(found, key=lambda record: record[0])

    def scan(self, ranges: Iterable[OffsetRange]) -> Iterator[tuple[SinkRecord, bool]]:
        wanted = list(ranges)
        return ((record, True) for record in self._there(True) if any(record[0] in some for some in wanted))

    def others(self, written: OffsetRange | None = None) -> Iterator[SinkRecord]:
        return iter(self._there(False))


class FolderStore(RecordStore):
    def __init__(self, settings: TargetSettings) -> None:
        super().__init__(settings)
        self.folder = Path(settings.connection["folder"])
        self.journal = Journal(self.folder)

    @property
    def login(self) -> Login:
        return Login(ClusterName(str(self.folder), "target"), "User:me")

    def cluster_id(self) -> str:
        self.journal.now()
        return str(self.folder)

    def describe(self, topic: str, *, whole: bool = False) -> Description | None:
        return Description(**there[1]) if (there := self.journal.now().get(("topic", topic))) else None

    def create(self, topic: ToCreate) -> None:
        about = {"id": uuid.uuid4().hex, "partitions": topic.partitions, "config": dict(topic.config)}
        self.journal.append([(("topic", topic.name), 0, about)], lambda values: ("topic", topic.name) not in values)

    def add_partitions(self, topic: str, partitions: int) -> None:
        _, about = self.journal.now()["topic", topic]
        self.journal.write((("topic", topic), 0, {**about, "partitions": partitions}))

    def records(self, key: PartitionKey, position: Position | None) -> FolderRecords:
        return FolderRecords(key, position, self.journal)

    def ledger_exists(self) -> bool:
        return self.describe(LEDGER_PLACE) is not None

    def create_ledger(self) -> None:
        self.create(ToCreate(name=LEDGER_PLACE, partitions=1))

    def head(self) -> Head:
        number, head = self.journal.now().get(("head", self.replication), (None, None))
        return Head(replication=self.replication) if head is None else Head.of(head, number)

    def heads(self) -> list[Head]:
        return [Head.of(head) for at, (_, head) in self.journal.now().items() if at[0] == "head"]

    def replace(self, before: Head, after: Head) -> bool:
        at, number = ("head", self.replication), before.at or 0
        return self.journal.append(
            [(at, number + 1, after.as_json())], lambda values: values.get(at, (None, None))[0] == before.at
        )

    def store(self, records: Sequence[LedgerRecord]) -> None:
        self.journal.write(*((("entry", self.replication, *one.place), one.offset, one.as_json()) for one in records))

    def remove(self, records: Sequence[LedgerRecord]) -> None:
        self.journal.write(*((("entry", self.replication, *one.place), one.offset, None) for one in records))

    def stored(self, place: tuple[str, int, str]) -> LedgerRecord | None:
        there = self.journal.now().get(("entry", self.replication, *place))
        return LedgerRecord.of_json(there[1]) if there else None

    def stored_since(self, replication: str, offset: int, topics: Iterable[str]) -> Iterator[LedgerRecord]:
        wanted = [("entry", replication, topic) for topic in topics]
        there = sorted(one for at, one in self.journal.now().items() if at[:3] in wanted)
        return (LedgerRecord.of_json(value) for number, value in there if number >= offset)

    def set_aside(self, aside: Aside, number: int, resend: Resend) -> tuple[Failure, ...]:
        at = ("aside", aside.place.topic, aside.place.partition, str(aside.key), aside.place.offset)
        self.journal.write((at, number, [aside.generation, text_of(aside.record), aside.about]))
        return ()

    def aside(self, key: PartitionKey, place: Place) -> SinkRecord | None:
        there = self.journal.now().get(("aside", place.topic, place.partition, str(key), place.offset))
        return None if there is None else record_of(there[1][1])

    def all_aside(self, key: PartitionKey, generation: int, first: Place) -> Iterator[tuple[int, dict[str, Any]]]:
        part = ("aside", first.topic, first.partition, str(key))
        there = sorted((at[4], value) for at, (_, value) in self.journal.now().items() if at[:4] == part)
        return ((offset, about) for offset, (of, _, about) in there if of == generation)


class FolderTarget(StoredTarget):
    connection_type: ClassVar[str] = "kafka"
    store_kind: ClassVar[type[RecordStore]] = FolderStore

    @classmethod
    def checked(cls, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        if "folder" not in settings:
            raise BadInput(f"connection {name!r} names no folder", "put it into the connection's extra")
        return dict(settings)
