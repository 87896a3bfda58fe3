"""Sends one record that librdkafka's producer cannot express (a header name that is not UTF-8, timestamp 0).

Kafka's wire format by hand: Produce version 3 and record batch version 2, https://kafka.apache.org/protocol.html.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

_POLYNOMIAL = 0x82F63B78  # CRC-32C (Castagnoli), reflected


def crc32c(data: bytes) -> int:
    """The checksum of a record batch."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _varint(value: int) -> bytes:
    number, out = (value << 1) ^ (value >> 63), b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _batch(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[bytes, bytes | None]], timestamp: int
) -> bytes:
    fields = b"\0" + _varint(0) + _varint(0) + _sized(key) + _sized(value) + _varint(len(headers))
    record = _sized(fields + b"".join(_sized(name) + _sized(content) for name, content in headers))
    # attributes, last offset delta, first and last timestamp, producer id, its epoch, base sequence, record count
    after_crc = struct.pack(">hiqqqhii", 0, 0, timestamp, timestamp, -1, -1, -1, 1) + record
    after_length = struct.pack(">ibI", -1, 2, crc32c(after_crc)) + after_crc
    return struct.pack(">qi", 0, len(after_length)) + after_length


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
    batch, name = _batch(key, value, headers, timestamp), topic.encode()
    body = struct.pack(">hhih4s", 0, 3, 7, 4, b"test") + struct.pack(">hhi", -1, -1, 30_000)
    body += struct.pack(f">ih{len(name)}siii", 1, len(name), name, 1, partition, len(batch)) + batch
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = answers.read(struct.unpack(">i", answers.read(4))[0])
    error, offset = struct.unpack_from(">hq", answer, 4 + 4 + 2 + len(name) + 4 + 4)
    assert error == 0, f"the broker refuses the raw record: error code {error}"
    return int(offset)
