"""Readers that are not librdkafka: Java's console consumer, kafka-python, and a decoder of stored batches."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from kafka import KafkaConsumer, TopicPartition
from kafka import codec as kafka_codec

from kafka_replication.kafka import offsets
from kafka_replication.kafka.batch_scan import BatchScan
from kafka_replication.kafka.callbacks import Throttling
from kafka_replication.model import offsets as product
from kafka_replication.wire.batch import Batch
from stack.artifacts import kafka_jars
from stack.java import java
from tests.support.checker import SAFETY
from tests.support.scenario import Cluster

NULL = "no-bytes-at-all"
_BYTES = "org.apache.kafka.common.serialization.BytesDeserializer"  # prints what is no printable letter as \\xFF
_SHOWN = {"timestamp", "partition", "headers", "key", "value"}
_LINE = re.compile(rb"(?:\w+Time|NO_TIMESTAMP):?(-?\d+)?\tPartition:(\d+)\t(.*)", re.DOTALL)
Headers = tuple[tuple[bytes, bytes | None], ...]


class Stored(NamedTuple):
    """A record as it is stored."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def _signed(time: int) -> int:
    """As 64 bits hold it."""
    return (time + 2**63) % 2**64 - 2**63


def by_java(bootstrap: str, topics: str, count: int) -> dict[int, list[bytes]]:
    """The first ``count`` records of all topics that this expression matches: a line for each, by partition. It has no
    offset, and does not tell times of the broker from those of the producer.
    """
    command = [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlog4j2.level=OFF", "-cp", f"{kafka_jars()}/*"]
    command += ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap]
    command += ["--include", topics, "--from-beginning", "--isolation-level", "read_committed"]
    command += ["--max-messages", str(count), "--timeout-ms", str(int(SAFETY * 1000))]
    settings = [f"print.{shown}=true" for shown in _SHOWN]
    settings += [f"null.literal={NULL}", "line.separator=\x01\n"]
    settings += [f"{part}.deserializer={_BYTES}" for part in ("key", "value", "headers")]
    for setting in settings:
        command += ["--formatter-property", setting]
    out = subprocess.run(command, check=True, capture_output=True).stdout
    found = defaultdict[int, list[bytes]](list)
    for line in out.split(b"\x01\n")[:-1]:
        matched = _LINE.fullmatch(line)
        assert matched, line[:300]
        found[int(matched[2])].append((matched[1] or b"-1") + b"\t" + matched[3])
    return found


def by_kafka_python(bootstrap: str, topic: str, partition: int) -> list[Stored]:
    """All records. The names of their headers have to be UTF-8."""
    at = TopicPartition(topic, partition)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        check_crcs=True,
        fetch_max_wait_ms=10,
    )
    try:
        consumer.assign([at])
        consumer.seek_to_beginning(at)
        end, found = consumer.end_offsets([at])[at], list[Stored]()
        while consumer.position(at) < end:
            for record in consumer.poll(timeout_ms=500).get(at, ()):
                names = tuple((name.encode(), content) for name, content in record.headers)
                found.append(Stored(_signed(record.timestamp), record.key, record.value, names))
        return found
    finally:
        consumer.close()


def as_stored(cluster: Cluster, topic: str, partition: int) -> list[tuple[int, Stored]]:
    """All visible records with their offsets, decoded here, by codecs that are not the product's."""
    at = product.TopicPartition(topic, partition)
    readable = offsets.readable_log(cluster.admin, at)
    scan = BatchScan({"bootstrap.servers": cluster.bootstrap}, at, SAFETY, Throttling("", ""))
    with closing(scan):  # the log may begin inside of a batch
        found = [record for batch in scan.visible(readable) for record in _records(batch)]
        return [(offset, record) for offset, record in found if readable.from_ <= offset]


def _records(batch: Batch) -> Iterator[tuple[int, Stored]]:
    data, position = _unpacked(batch), 0
    for _ in range(batch.count):
        length, position = _varint(data, position)
        record, end = data[position + 1 : position + length], position + length
        time, at = _varint(record, 0)
        delta, at = _varint(record, at)
        key, at = _sized(record, at)
        value, at = _sized(record, at)
        count, at = _varint(record, at)
        headers = list[tuple[bytes, bytes | None]]()
        for _ in range(count):
            name, at = _sized(record, at)
            content, at = _sized(record, at)
            headers.append((name or b"", content))
        assert at == len(record), "there is more behind the last header"
        shown = batch.max_timestamp if batch.attributes & 0b1000 else _signed(batch.base_timestamp + time)
        yield batch.base_offset + delta, Stored(shown, key, value, tuple(headers))
        position = end
    assert position == len(data), "there is more behind the last record"


def _unpacked(batch: Batch) -> bytes:
    data = bytes(batch.payload)
    match batch.attributes & 0b111:
        case 0:
            return data
        case 1:
            return bytes(kafka_codec.gzip_decode(data))
        case 2:
            return bytes(kafka_codec.snappy_decode(data))
        case 3:
            return bytes(kafka_codec.lz4_decode(data))
    return bytes(kafka_codec.zstd_decode(data))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    return (None, at) if length < 0 else (data[at : at + length], at + length)
