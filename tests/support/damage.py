"""Damages batches on a broker's disk, and mends them. The broker runs on: it does not look into what it sends."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from stack.kafka_cluster import KafkaCluster
from tests.support.scenario import Scenario, numbered

HEADER = 61  # bytes before a batch's first record
LAST_OFFSET_DELTA = 23  # place of that field in the header
_CRC, _AFTER_CRC = 17, 21


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a partition: offsets ``first`` to ``last``, ``size`` bytes from ``at`` on."""

    file: Path
    first: int
    last: int
    at: int
    size: int

    def write(self, place: int, content: bytes) -> None:
        """Overwrite bytes; ``place`` counts from the batch's beginning, or from its end if it is negative."""
        with self.file.open("r+b") as log:
            log.seek(self.at + (self.size + place if place < 0 else place))
            log.write(content)

    def read(self) -> bytes:
        return self.file.read_bytes()[self.at : self.at + self.size]

    def break_checksum(self) -> None:
        self.write(-8, bytes(byte ^ 1 for byte in self.read()[-8:]))

    def break_body(self) -> None:
        """A byte in the value of its last record is another one; the checksum is right."""
        self.write(-8, bytes(byte ^ 1 for byte in self.read()[-8:-7]))
        self.write(_CRC, struct.pack(">I", crc32c(self.read()[_AFTER_CRC:])))

    def break_compression(self) -> None:
        """With a checksum that is right, as a faulty producer would write it."""
        self.write(HEADER, b"\xff" * 16)
        self.write(_CRC, struct.pack(">I", crc32c(self.read()[_AFTER_CRC:])))


def fill(scene: Scenario, partition: int = 0, codec: str = "none") -> None:
    """Four batches of ten records: none is sent before its last record is there."""
    for number in range(4):
        records = numbered(10, 10 * number)
        scene.source.produce(scene.topic, records, partition, compression_type=codec, linger_ms=60_000)


def batches(data: Path, topic: str, partition: int = 0) -> list[Batch]:
    """``data`` is the broker's folder."""
    files = sorted((data / f"{topic}-{partition}").glob("*.log"))
    return [batch for file in files for batch in _in(file)]


def _in(file: Path) -> Iterator[Batch]:
    content, at = file.read_bytes(), 0
    while at + HEADER <= len(content):
        first, length = struct.unpack_from(">qi", content, at)
        if length <= 0:  # a segment may have been given its space before
            break
        (delta,) = struct.unpack_from(">i", content, at + LAST_OFFSET_DELTA)
        yield Batch(file, first, first + delta, at, 12 + length)
        at += 12 + length


def lose_from(data: Path, topic: str, partition: int, offset: int, kept: int = 0) -> int:
    """A partition's log ends before the batch with this offset, on the disk of a broker that does not run. Of that batch
    ``kept`` bytes stay, which nobody can read. Returns the offset at which the log ends; it may be as long as it was.
    """
    found = batches(data, topic, partition)
    lost = next((batch for batch in found if batch.last >= offset), None)
    if lost is None:
        return found[-1].last + 1 if found else 0
    os.truncate(lost.file, lost.at + min(kept, lost.size - 1))
    for file in lost.file.parent.glob("[0-9]*"):
        if int(file.name.partition(".")[0]) > lost.first:  # later segments, and what is known of producers there
            file.unlink()
    return lost.first


@contextmanager
def healed(*damaged: Batch) -> Iterator[None]:
    """The batches, as they are before the body, are restored after it."""
    before = [batch.read() for batch in damaged]
    yield
    for batch, content in zip(damaged, before, strict=True):
        batch.write(0, content)


@contextmanager
def forgotten(scene: Scenario, cluster: KafkaCluster, partition: str = "*") -> Iterator[None]:
    """What happens meanwhile to the topic's partitions, or to one of them, is not on the disk afterwards."""
    broker = cluster.brokers[0]
    backup = scene.folder / "backup"
    broker.stop()
    for folder in broker.data.glob(f"{scene.topic}-{partition}"):
        shutil.copytree(folder, backup / folder.name)
    broker.start()
    yield
    broker.stop()
    for folder in backup.iterdir():
        shutil.rmtree(broker.data / folder.name)
        shutil.copytree(folder, broker.data / folder.name)
    broker.start()
