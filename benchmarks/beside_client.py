"""Targets that are not Kafka, beside a client alone: the topic, the turns and the table that their benchmarks share.

Ours runs the functions of a Spark Python worker in two processes, without Spark's start; a client runs in two
processes, too. All take turns in a random order, each with a new index or table; ratios are those within a turn.
RECORDS (default 100,000) of 1 KiB of JSON in 4 partitions; REPEATS turns after one that warms up.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from confluent_kafka import Producer

from benchmarks.clusters import Pair
from benchmarks.tables import heading, row
from benchmarks.two_processes import two_processes
from benchmarks.two_workers import ours
from benchmarks.usage import Usage, Used
from benchmarks.workload import PARTITIONS, REPEATS, create

RECORDS = int(os.environ.get("RECORDS", "100000"))
SIZE, TOPIC = 1024, "orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The use of writing alone, and of reading back, which a client does not do."""

    writing: Used
    reading_back: Used | None = None

    @property
    def whole(self) -> Used:
        return self.writing + self.reading_back if self.reading_back else self.writing


Writer = Callable[[str], Written]  # of the name that is the beginning of its index's or table's
Turn = Mapping[str, Written]


def by_us(pair: Pair, name: str, target: Mapping[str, Any]) -> Written:
    """A run of ours; ``target`` is that of its file."""
    done = ours(pair, TOPIC, name, target=dict(target))
    return Written(writing=done.copying, reading_back=done.reading_back)


def by_client(module: str, write: Callable[[Any, list[int]], None], what: Any, servers: Sequence[int]) -> Written:
    """``write(what, partitions)`` of a module in two processes, each with half of the partitions."""
    halves = [(what, list(range(first, PARTITIONS, 2))) for first in range(2)]
    with two_processes(module) as (pool, pids), Usage(pids, servers) as usage:
        pool.starmap(write, halves)
    return Written(writing=usage.used)


def fill(bootstrap: str) -> dict[int, int]:
    """JSON objects of numbers, names and text, each in the partition that its key belongs to. Returns the partitions'
    ends.
    """
    create(bootstrap, TOPIC)
    rng = random.Random(7)
    words = [str(rng.getrandbits(40)) for _ in range(400)]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 50,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": RECORDS + 1,
            "queue.buffering.max.kbytes": 2 << 20,
        }
    )
    ends = Counter[int]()

    def sent(_: object, message: Any) -> None:
        ends[message.partition()] += 1

    for number in range(RECORDS):
        order = {"id": number, "customer": f"c{number % 997}", "amount": number % 1000 / 4, "paid": number % 3 == 0}
        value = json.dumps({**order, "text": " ".join(rng.choices(words, k=90))[: SIZE - 90]})
        producer.produce(TOPIC, value, b"k%08d" % number, on_delivery=sent)
    producer.flush()
    return dict(ends)


def turns(writers: Mapping[str, Writer], count: Callable[[str], int], delete: Callable[[str], None]) -> list[Turn]:
    """``count`` and ``delete`` are about what was written under a name. Ends the program if anything is missing."""
    dice, done = random.Random(7), list[Turn]()
    for number in range(1 + REPEATS):
        turn = dict[str, Written]()
        for at, writer in dice.sample(list(enumerate(writers)), len(writers)):
            name = f"bench-{number}-{at}"
            turn[writer] = writers[writer](name)
            if (found := count(name)) != RECORDS:
                raise SystemExit(f"{writer} wrote {found:,} of {RECORDS:,}")
            delete(name)
        said = ", ".join(f"{writer} {written.writing.seconds:.1f} s" for writer, written in turn.items())
        print(f"turn {number}: {said}", file=sys.stderr)
        done.append(turn)
    return done[1:]


def show(module: str, things: str, peer: str, done: Sequence[Turn]) -> None:
    """The table of all writers, with ratios to the ``peer``."""
    many = f"RECORDS={RECORDS} " if RECORDS != 100_000 else ""
    print(
        f"`{many}python -m benchmarks.{module}`: {RECORDS:,} {things} of 1 KiB; medians of {REPEATS} turns, on"
        f" {os.cpu_count()} processors that the source's broker and the server share\n"
    )
    heading(
        (
            "written by",
            f"{things}/s",
            f"times {peer}",
            f"with reading back, {things}/s",
            "CPU s for 100,000",
            "with reading back",
            "of the server",
            "largest process, MB",
        )
    )
    for writer in done[0]:
        row(_row(writer, peer, done))


def _row(writer: str, peer: str, done: Sequence[Turn]) -> list[object]:
    own, other = [turn[writer] for turn in done], [turn[peer] for turn in done]
    each, verified = 100_000 / RECORDS, own[0].reading_back is not None
    return [
        writer,
        RECORDS / median(one.writing.seconds for one in own),
        median(peers.writing.seconds / one.writing.seconds for one, peers in zip(own, other, strict=True)),
        RECORDS / median(one.whole.seconds for one in own) if verified else "-",
        each * median(one.writing.cpu for one in own),
        each * median(one.whole.cpu for one in own) if verified else "-",
        each * median(one.writing.brokers for one in own),
        round(max(one.whole.mb for one in own)),
    ]
