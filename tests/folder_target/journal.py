"""The one file of a folder target: lines that are whole or not there, and what all of them together say."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_replication.api import SinkRecord, Unreachable
from kafka_replication.api.targets import LogEntry

Line = dict[str, Any]


def text_of(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def line_of(topic: str, partition: int, record: SinkRecord) -> list[Any]:
    offset, timestamp, key, value, headers = record
    named = [[name, text_of(content)] for name, content in headers or ()]
    return [topic, partition, offset, timestamp, text_of(key), text_of(value), named]


@dataclass
class Folder:
    """A topic: a folder in name only."""

    id: str
    partitions: int
    config: dict[str, str]
    records: dict[int, dict[int, SinkRecord]] = field(default_factory=dict)
    entries: dict[int, list[LogEntry]] = field(default_factory=dict)

    def end(self, partition: int) -> int:
        return max(self.records.get(partition, {}), default=-1) + 1


class Journal:
    """What the file says. Each object reads on where it has stopped."""

    def __init__(self, folder: Path) -> None:
        self._path, self._read = folder / "journal", 0
        self.topics: dict[str, Folder] = {}
        self.epochs: dict[str, int] = {}

    def now(self) -> Journal:
        """This, with all lines that are there now. Raises Unreachable if the folder is gone."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                content = file.read()
        except OSError as error:
            raise Unreachable(
                f"the target folder {self._path.parent} does not answer: {error}", "bring it back"
            ) from error
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._take(json.loads(line))
        self._read += len(whole)
        return self

    def append(self, line: Line, check: Callable[[Journal], None] = lambda _: None) -> None:
        """Write a line, if ``check`` raises nothing: nobody else writes meanwhile."""
        self.now()
        with self._path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            check(self.now())
            file.truncate(self._read)  # what somebody has left who died while writing
            file.seek(self._read)
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.now()

    def _take(self, line: Line) -> None:
        match line["do"]:
            case "create":
                self.topics.setdefault(line["topic"], Folder(line["id"], line["partitions"], line["config"]))
            case "delete":
                self.topics.pop(line["topic"], None)
            case "set":
                self.topics[line["topic"]].config |= line["config"]
            case "grow":
                self.topics[line["topic"]].partitions = line["partitions"]
            case "fence":
                self.epochs[line["by"]] = self.epochs.get(line["by"], 0) + 1
            case "commit":
                for topic, partition, offset, timestamp, key, value, headers in line["records"]:
                    named = [(name, bytes_of(content)) for name, content in headers] or None
                    record = offset, timestamp, bytes_of(key), bytes_of(value), named
                    self.topics[topic].records.setdefault(partition, {})[offset] = record
                for topic, partition, key, value in line["entries"]:
                    entries = self.topics[topic].entries.setdefault(partition, [])
                    entries.append((len(entries), bytes_of(key) or b"", bytes_of(value)))


def create(journal: Journal, topic: str, partitions: int, config: Mapping[str, str] = {}) -> None:
    """Create the topic, unless it exists."""
    known = {"do": "create", "topic": topic, "id": uuid.uuid4().hex, "partitions": partitions, "config": dict(config)}
    journal.append(known)


def commit(
    journal: Journal,
    by: str,
    epoch: int,
    records: Iterable[list[Any]],
    entries: Iterable[list[Any]],
    check: Callable[[Journal], None],
) -> None:
    """Write records and entries together, as a session of this epoch."""
    journal.append({"do": "commit", "by": by, "epoch": epoch, "records": [*records], "entries": [*entries]}, check)
