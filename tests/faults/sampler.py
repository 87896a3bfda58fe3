"""Watches a replication while it runs: watermark <= verified <= copied, and whatever is below the watermark is on the target.

Reads the store's table and the ledger's JSON by itself: a mistake in the product's reading cannot hide here.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import uuid
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.faults.load import Load

LEDGER = "kafka-replication.positions"
PAUSE = 0.2
_QUERY = "SELECT source_partition, next_offset FROM kafka_replication_watermarks WHERE replication = ?"


def watermarks(store: Path, replication: str) -> dict[int, int]:
    """What the store holds, by partition; nothing while it cannot be read."""
    if not store.exists():
        return {}
    with suppress(sqlite3.Error):
        connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=0.2)
        try:
            return dict(connection.execute(_QUERY, (replication,)))
        finally:
            connection.close()
    return {}


def progress(store: Path, replication: str) -> dict[str, Any]:
    """What the store holds of the newest run's progress."""
    query = "SELECT progress FROM kafka_replication_runs WHERE replication = ? ORDER BY created_at DESC LIMIT 1"
    with closing(sqlite3.connect(store)) as connection:
        [[text]] = connection.execute(query, (replication,))
    return dict(json.loads(text))


class Sampler:
    """One thread; ``violations`` grows, ``samples`` counts the comparisons that were made."""

    def __init__(
        self, bootstrap: str, store: Path, replication: str, target_topic: str, load: Load, *, spread: bool = False
    ) -> None:
        self._bootstrap, self._store, self._replication, self._topic, self._load = (
            bootstrap,
            store,
            replication,
            target_topic,
            load,
        )
        self._spread = spread  # records of a source partition lie in several target partitions
        self.violations: list[str] = []
        self.samples = 0
        self._verified: dict[int, list[list[int]]] = {}
        self._positions: dict[int, dict[str, Any]] = {}
        self._copied: Counter[int] = Counter()
        self._lost: Counter[int] = Counter()  # reported as lost in delivery
        self._read: dict[tuple[str, int], int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _watch(self) -> None:
        reader = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"sampler-{uuid.uuid4()}",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        try:
            while not self._stop.wait(PAUSE):
                with suppress(KafkaException):
                    self._sample(reader)
        finally:
            reader.close()

    def _sample(self, reader: Consumer) -> None:
        """The store first: whatever it says must then be found in the ledger and on the target as they are **afterwards**."""
        stored = watermarks(self._store, self._replication)
        if not self._assigned(reader):
            if stored:
                self._note(f"the store has watermarks {stored}, and there is no ledger")
            return
        ends = {}
        for at in list(self._read):
            _, ends[at] = reader.get_watermark_offsets(TopicPartition(*at), timeout=2)
        deadline = time.monotonic() + 5
        while any(self._read[at] < end for at, end in ends.items()):
            self._take(reader)
            if self._stop.is_set() or time.monotonic() > deadline:
                return  # a leader is away: nothing can be said now
        self._judge(stored)

    def _assigned(self, reader: Consumer) -> bool:
        if self._read:
            return True
        known = reader.list_topics(timeout=5).topics
        if LEDGER not in known or self._topic not in known:
            return False
        self._read = {(topic, partition): 0 for topic in (LEDGER, self._topic) for partition in known[topic].partitions}
        for partition in known[LEDGER].partitions:  # an older replication's entries are not ours
            _, end = reader.get_watermark_offsets(TopicPartition(LEDGER, partition), timeout=5)
            self._read[LEDGER, partition] = min(end, self._ours_begin.get(partition, 0))
        reader.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in self._read.items()])
        return True

    _ours_begin: dict[int, int] = {}  # noqa: RUF012 - replaced, never changed

    def skip(self, ledger_ends: dict[int, int]) -> None:
        """The ledger's ends before the replication began: nothing of it lies before."""
        self._ours_begin = ledger_ends

    def _take(self, reader: Consumer) -> None:
        for message in reader.consume(1000, 0.05):
            topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
            error = message.error()
            if error is None:
                self._read[topic, partition] = offset + 1
                if topic == LEDGER:
                    self._note_entry(message.key() or b"", message.value())
                else:
                    self._copied[partition] += 1
            elif error.code() == KafkaError._PARTITION_EOF:  # the only event that tells of markers and aborted records
                self._read[topic, partition] = max(self._read[topic, partition], offset)

    def _note_entry(self, key: bytes, value: bytes | None) -> None:
        with suppress(ValueError, TypeError):
            kind, replication, _, partition, _ = json.loads(key)
            if replication == self._replication and value is not None:
                entry = json.loads(value)
                if kind == "position":
                    self._positions[partition] = entry
                elif kind == "verified":
                    self._verified[partition] = entry["coverage"]
                    self._lost[partition] = entry.get("lost_in_delivery", 0)

    def _judge(self, stored: dict[int, int]) -> None:
        self.samples += 1
        wanted_of_all = 0
        for partition, watermark in stored.items():
            position = self._positions.get(partition)
            if position is None:
                self._note(f"partition {partition}: watermark {watermark}, and no position")
                continue
            verified = _contiguous(self._verified.get(partition, []), position["start"])
            if watermark > verified:
                self._note(f"partition {partition}: watermark {watermark} > verified {verified}")
            wanted = self._load.wanted_below(partition, watermark) - self._load.wanted_below(
                partition, position["start"]
            )
            wanted_of_all += wanted
            if not self._spread and self._copied[partition] < wanted - self._lost[partition]:
                self._note(
                    f"partition {partition}: watermark {watermark} means {wanted} records, {self._copied[partition]} are there"
                )
        if self._copied.total() < wanted_of_all - self._lost.total():
            self._note(f"the watermarks mean {wanted_of_all} records, {self._copied.total()} are there")
        for partition, ranges in self._verified.items():
            copied = self._positions.get(partition, {}).get("coverage", [])
            outside = [each for each in ranges if not any(c[0] <= each[0] and each[1] <= c[1] for c in copied)]
            if outside:
                self._note(f"partition {partition}: verified {outside} is not copied: {copied}")

    def _note(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)


def _contiguous(ranges: list[list[int]], start: int) -> int:
    for from_, until in ranges:
        if from_ <= start < until:
            return until
    return start
