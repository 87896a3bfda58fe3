"""Sends records that librdkafka's producer cannot express (a header name that is not UTF-8, timestamp 0).

Kafka's wire format by hand: Produce version 7 and record batch version 2, https://kafka.apache.org/protocol.html.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from crc32c import crc32c

from tests.support.waiting import wait_until

FRAME = 61  # bytes of a batch before its records


def _varint(value: int) -> bytes:
    number, out = (value << 1) ^ (value >> 63), b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


@dataclass(frozen=True)
class RawRecord:
    """A record whose header names are bytes."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp: int = 1


def _wrapped(time: int) -> int:
    """The time as 64 bits hold it, as Java and C add and subtract times."""
    return (time + 2**63) % 2**64 - 2**63


def _record(record: RawRecord, delta: int, base: int) -> bytes:
    fields = (
        b"\0" + _varint(_wrapped(record.timestamp - base)) + _varint(delta) + _sized(record.key) + _sized(record.value)
    )
    fields += _varint(len(record.headers))
    return _sized(fields + b"".join(_sized(name) + _sized(content) for name, content in record.headers))


def raw_batch(
    records: Sequence[RawRecord],
    offset: int = 0,
    base: int | None = None,
    attributes: int = 0,
    payload: bytes | None = None,
    offsets: Sequence[int] | None = None,
) -> bytes:
    """A record batch. ``payload``: these records, compressed as the attributes say. ``offsets`` are those within the
    batch, where it was compacted.
    """
    places = range(len(records)) if offsets is None else offsets
    first = records[0].timestamp if base is None else base
    latest = max(record.timestamp for record in records)
    if payload is None:
        payload = b"".join(_record(record, delta, first) for delta, record in zip(places, records, strict=True))
    # attributes, last offset delta, first and last timestamp, producer id, its epoch, base sequence, record count
    numbers = attributes, places[-1], first, latest, -1, -1, -1, len(records)
    after_crc = struct.pack(">hiqqqhii", *numbers) + payload
    after_length = struct.pack(">ibI", -1, 2, crc32c(after_crc)) + after_crc
    return struct.pack(">qi", offset, len(after_length)) + after_length


def produce_raw(
    bootstrap: str,
    topic: str,
    partition: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    timestamp: int = 1,
) -> int:
    """Send one record to a cluster of one broker; returns its offset."""
    return produce_batch(bootstrap, topic, partition, [RawRecord(key, value, tuple(headers), timestamp)])


def produce_batch(bootstrap: str, topic: str, partition: int, records: Sequence[RawRecord]) -> int:
    """Send records as one batch to a cluster of one broker; returns the offset of the first one."""
    with closing(RawProducer(bootstrap)) as producer:
        return producer.send(topic, partition, raw_batch(records))


NO_LEADER_YET = (3, 5, 6)  # UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER


class RawProducer:
    """A connection to a cluster of one broker."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(",")[0].rsplit(":", 1)
        self._connection = socket.create_connection((host, int(port)), timeout=60)
        self._answers = self._connection.makefile("rb")

    def close(self) -> None:
        self._answers.close()
        self._connection.close()

    def send(self, topic: str, partition: int, batch: bytes) -> int:
        """Send a batch; returns the offset of its first record. A topic that was just created may have no leader yet."""
        answers = list[tuple[int, int]]()

        def is_answered() -> bool:
            answers.append(self._answer(topic, partition, batch))
            return answers[-1][0] not in NO_LEADER_YET

        wait_until(is_answered)
        error, offset = answers[-1]
        assert error == 0, f"the broker refuses the raw batch: error code {error}"
        return offset

    def _answer(self, topic: str, partition: int, batch: bytes) -> tuple[int, int]:
        """The error code and the offset."""
        name = topic.encode()
        body = struct.pack(">hhih4s", 0, 7, 7, 4, b"test") + struct.pack(">hhi", -1, -1, 30_000)
        body += struct.pack(f">ih{len(name)}siii", 1, len(name), name, 1, partition, len(batch)) + batch
        self._connection.sendall(struct.pack(">i", len(body)) + body)
        answer = self._answers.read(struct.unpack(">i", self._answers.read(4))[0])
        error, offset = struct.unpack_from(">hq", answer, 4 + 4 + 2 + len(name) + 4 + 4)
        return int(error), int(offset)
