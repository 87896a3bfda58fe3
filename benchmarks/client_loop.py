"""A client loop as somebody writes it who needs a copy today: librdkafka's consumer and its idempotent producer.

Two processes, each with half of the partitions; tuned as well as we know. At least once, and nothing is verified.
``python -m benchmarks.client_loop`` takes a `Loop` as JSON on stdin. It imports nothing of the product.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from benchmarks.two_processes import two_processes

MODULE = "benchmarks.client_loop"
# Without the first, the client fetches nothing for a second whenever its queue was full.
CONSUMER = {
    "fetch.queue.backoff.ms": 2,
    "fetch.message.max.bytes": 8 << 20,
    "queued.min.messages": 200_000,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "group.id": "unused",
}
PRODUCER = {
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 128 << 10,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One topic to copy, whose partitions end at these offsets."""

    source: Mapping[str, Any]
    target: Mapping[str, Any]
    topic: str
    to: str
    ends: Mapping[int, int]


def copy_some(loop: Loop, partitions: list[int]) -> None:
    """Copy these partitions of a loop."""
    consumer, producer = Consumer({**loop.source, **CONSUMER}), Producer({**loop.target, **PRODUCER})
    consumer.assign([TopicPartition(loop.topic, number, OFFSET_BEGINNING) for number in partitions])
    left = {number: loop.ends[number] for number in partitions if loop.ends[number]}
    while left:
        messages: Sequence[Any] = consumer.consume(5_000, 1.0)
        for message in messages:
            if error := message.error():
                raise KafkaException(error)
            _send(producer, loop.to, message)
            if message.offset() + 1 >= left.get(message.partition(), sys.maxsize):
                del left[message.partition()]
        producer.poll(0)
    producer.flush()
    consumer.close()


def messages(source: Mapping[str, Any], topic: str, ends: Mapping[int, int]) -> Iterator[Any]:
    """The records of these partitions up to their ends."""
    consumer = Consumer({**source, **CONSUMER})
    left = {number: end for number, end in ends.items() if end}
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
    while left:
        several: Sequence[Any] = consumer.consume(1_000, 1.0)
        for message in several:
            if error := message.error():
                raise KafkaException(error)
            yield message
            if message.offset() + 1 >= left.get(message.partition(), sys.maxsize):
                del left[message.partition()]
    consumer.close()


def _send(producer: Producer, topic: str, message: Any) -> None:
    while True:
        try:
            producer.produce(
                topic,
                message.value(),
                message.key(),
                message.partition(),
                timestamp=message.timestamp()[1],
                headers=message.headers(),
            )
            return
        except BufferError:
            producer.poll(0.05)


def halves(loop: Loop) -> list[tuple[Loop, list[int]]]:
    """The work of each process."""
    numbers = sorted(loop.ends)
    return [(loop, numbers[first::2]) for first in range(2)]


def main() -> None:
    asked = json.load(sys.stdin)
    loop = Loop(**{**asked, "ends": {int(number): end for number, end in asked["ends"].items()}})
    with two_processes(MODULE) as (pool, _):
        pool.starmap(copy_some, halves(loop))


if __name__ == "__main__":
    main()
