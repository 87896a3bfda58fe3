"""``python -m benchmarks.pipeline``: what a filter and a transform cost for each record, beside a copy without them.

No broker is started: the chunk reader gets messages that arrived already, and the writer takes them without sending.
So the ratios are those of reading, decoding and the digest; a whole copy also sends, and waits for both brokers. All
kinds take turns; the medians of the processor time are reported, and the ratio of each kind to ``nothing`` in a turn.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from kafka_replication.config import Copy, PipelineDefinition
from kafka_replication.copying.pipeline import PipelineWriter, load
from kafka_replication.copying.sink import Record, Screen
from kafka_replication.copying.steps import Origin
from kafka_replication.kafka.chunk_reader import ChunkReader
from kafka_replication.kafka.consumer_pool import Pace
from kafka_replication.kafka.reading import PartitionReader
from kafka_replication.ledger.entries import FailedRecord
from kafka_replication.ledger.placement import KafkaSegments, Placement
from kafka_replication.model.choices import Failure
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runtime.garbage import without_gc
from kafka_replication.transforms import Record as Given

RECORDS, SIZE, TURNS = 50_000, 1024, 5
AT = TopicPartition("bench", 0)
KINDS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "exclude_from": {"exclude_from": ("another-cluster",)},
    "filter by header": {"filter": "headers.type == 'order'"},
    "filter by key": {"filter": "starts_with(key, 'k')"},
    "filter by value (1 KiB of JSON)": {"filter": "value.customer.country == 'de' && value.amount >= `0`"},
    "provenance": {"transform": ("provenance",)},
    "function that does nothing": {"transform": ("benchmarks.pipeline:same",)},
    "function that reads and writes JSON": {"transform": ("benchmarks.pipeline:masked",)},
}


def same(record: Given) -> Given:
    return record


def masked(record: Given) -> Given:
    order = json.loads(record.value or b"{}")
    return record.replace(value=json.dumps({**order, "card": "****"}).encode())


class Nowhere:
    """A writer that takes everything and sends nothing, and sets nothing aside."""

    screen: Screen | None = None
    full = False
    failures: tuple[FailedRecord, ...] = ()

    def set_aside(self, record: Record, failure: Failure) -> None: ...

    def write(self, records: Sequence[Record]) -> None: ...

    def finish(self, digest: str) -> Placement:  # noqa: ARG002
        return KafkaSegments()


def messages() -> list[Message]:
    """Newest first, as a chunk reader keeps them."""
    order = {"id": 1, "amount": 20, "customer": {"country": "de"}, "card": "0" * 16, "lines": ["a line of text"] * 50}
    value = json.dumps(order).encode()[: SIZE + 8].ljust(SIZE)
    headers = [("type", b"order"), ("version", b"3")]
    found: list[Message] = []
    for n in reversed(range(RECORDS)):
        when = (TIMESTAMP_CREATE_TIME, 1_700_000_000_000 + n)
        made: Any = Message
        found.append(
            made(topic="bench", partition=0, offset=n, key=b"k%d" % n, value=value, headers=headers, timestamp=when)
        )
    return found


def seconds(arrived: list[Message], definition: PipelineDefinition) -> float:
    consumer: Any = None  # everything has arrived
    source = PartitionReader(consumer, AT)
    source.pending = list(arrived)
    chunk = ChunkReader(
        source=source,
        left=OffsetRange(0, RECORDS),
        most_records=RECORDS,
        settings=Copy(chunk_records=RECORDS),
        pace=Pace(None),
    )
    pipeline, writer = load(definition), Nowhere()
    started = time.process_time()
    if pipeline is None:
        with without_gc():
            chunk.read(writer)
    else:
        piped = PipelineWriter(pipeline, Origin("this-cluster", "bench", 0), writer)
        chunk.read(piped)
        assert piped.copied == RECORDS, "every record is written, so that all kinds do the same work"
    return time.process_time() - started


def main(say: Callable[[str], None] = print) -> None:
    arrived = messages()
    turns = [
        {name: seconds(arrived, PipelineDefinition(**kind)) for name, kind in KINDS.items()} for _ in range(TURNS + 1)
    ][1:]
    say(f"{RECORDS:,} records of {SIZE} bytes; medians of {TURNS} turns\n")
    say("| what | microseconds a record | relative to nothing |\n| --- | --- | --- |")
    for name in KINDS:
        micros = median(turn[name] for turn in turns) / RECORDS * 1e6
        ratio = median(turn[name] / turn["nothing"] for turn in turns)
        say(f"| {name} | {micros:.2f} | {ratio:.1f} |")


if __name__ == "__main__":
    main()
