"""``python -m benchmarks.opensearch``: documents a second with OpenSearch as the target, beside `parallel_bulk` alone.

Ours runs the functions of a Spark Python worker in two processes, without Spark's start; the client
(`opensearch_client`) runs in two processes, too. All take turns in a random order, each with a new index; ratios are
those within a turn. RECORDS (default 100,000) documents of 1 KiB of JSON in 4 partitions; REPEATS turns after one that
warms up.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from confluent_kafka import Producer

from benchmarks import clusters
from benchmarks.opensearch_client import MODULE, Indexing, index_some
from benchmarks.tables import heading, row
from benchmarks.two_processes import two_processes
from benchmarks.two_workers import ours
from benchmarks.usage import Usage, Used
from benchmarks.workload import PARTITIONS, REPEATS, create, send
from kafka_replication.opensearch.documents import mapping
from kafka_replication.runtime import stopping
from stack.opensearch_server import OpenSearchServer

RECORDS = int(os.environ.get("RECORDS", "100000"))
SIZE, TOPIC = 1024, "orders"
OURS, PLAIN, ABOUT = "ours", "`parallel_bulk`", "`parallel_bulk`, the same documents"
COLUMNS = (
    "written by",
    "documents/s",
    "times parallel_bulk",
    "with reading back, documents/s",
    "CPU s for 100,000",
    "with reading back",
    "of the node",
    "largest process, MB",
)


@dataclass(frozen=True, kw_only=True)
class Place(clusters.Pair):
    """Kafka as the source, and a node of OpenSearch as the target."""

    node: OpenSearchServer

    @property
    def brokers(self) -> list[int]:
        """The pid of the node alone."""
        assert self.node.process is not None
        return [self.node.process.pid]

    def service(self, _: str, __: str) -> dict[str, Any]:
        return {"url": self.node.url}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        return httpx.request(method, f"{self.node.url}/{path}", json=body, timeout=120).raise_for_status().json()

    def documents(self, index: str) -> int:
        self.ask("POST", f"{index}/_refresh")
        return int(self.ask("GET", f"{index}/_count")["count"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The use of writing alone, and of reading back; the client does not do that."""

    writing: Used
    both: Used


Turn = Mapping[str, Written]


def _ours(place: Place, name: str) -> Written:
    done = ours(place, TOPIC, name, target={"connection": "target", "type": "opensearch"})
    return Written(writing=done.copying, both=done.copying + done.reading_back)


def _client(place: Place, name: str, *, about: bool) -> Written:
    index = f"{name}.{TOPIC}"
    settings = {"settings": {"index": {"number_of_replicas": 0}}}
    place.ask("PUT", index, {**settings, **({"mappings": mapping(PARTITIONS)} if about else {})})
    ends = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
    indexing = Indexing(source=place.source, url=place.node.url, topic=TOPIC, to=index, ends=ends, about=about)
    halves = [(indexing, list(range(first, PARTITIONS, 2))) for first in range(2)]
    with two_processes(MODULE) as (pool, pids), Usage(pids, place.brokers) as usage:
        pool.starmap(index_some, halves)
    return Written(writing=usage.used, both=usage.used)


WRITERS: Mapping[str, Callable[[Place, str], Written]] = {
    OURS: _ours,
    PLAIN: partial(_client, about=False),
    ABOUT: partial(_client, about=True),
}


def fill(bootstrap: str) -> None:
    """JSON objects of numbers, names and text."""
    create(bootstrap, TOPIC)
    rng = random.Random(7)
    words = [str(rng.getrandbits(40)) for _ in range(400)]

    def value(number: int) -> bytes:
        order = {"id": number, "customer": f"c{number % 997}", "amount": number % 1000 / 4, "paid": number % 3 == 0}
        text = " ".join(rng.choices(words, k=90))
        return json.dumps({**order, "text": text[: SIZE - 90]}).encode()

    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 50})
    send(producer, TOPIC, PARTITIONS, ((b"k%08d" % number, value(number)) for number in range(RECORDS)))


def turns(place: Place) -> list[Turn]:
    dice, done = random.Random(7), list[Turn]()
    for number in range(1 + REPEATS):
        turn = dict[str, Written]()
        for at, writer in dice.sample(list(enumerate(WRITERS)), len(WRITERS)):
            name = f"bench-{number}-{at}"
            turn[writer] = WRITERS[writer](place, name)
            index = f"{name}.{TOPIC}"
            if (found := place.documents(index)) != RECORDS:
                raise SystemExit(f"{writer} wrote {found:,} of {RECORDS:,} documents")
            place.ask("DELETE", index)
        said = ", ".join(f"{writer} {written.writing.seconds:.1f} s" for writer, written in turn.items())
        print(f"turn {number}: {said}", file=sys.stderr)
        done.append(turn)
    return done[1:]


def shown(writer: str, done: Sequence[Turn]) -> list[object]:
    own, peer = [turn[writer] for turn in done], [turn[PLAIN] for turn in done]
    each = 100_000 / RECORDS
    verified = writer == OURS
    return [
        writer,
        RECORDS / median(one.writing.seconds for one in own),
        median(other.writing.seconds / one.writing.seconds for one, other in zip(own, peer, strict=True)),
        RECORDS / median(one.both.seconds for one in own) if verified else "-",
        each * median(one.writing.cpu for one in own),
        each * median(one.both.cpu for one in own) if verified else "-",
        each * median(one.writing.brokers for one in own),
        round(max(one.both.mb for one in own)),
    ]


def main() -> None:
    stopping.on_signals()
    logging.getLogger("kafka_replication").setLevel(logging.ERROR)
    with clusters.plain() as pair:
        node = OpenSearchServer("opensearch", Path(pair.folder))
        node.start()
        try:
            place = Place(folder=pair.folder, clusters=pair.clusters, source=pair.source, target=pair.target, node=node)
            fill(pair.clusters[0].bootstrap)
            done = turns(place)
        finally:
            node.kill()
    many = f"RECORDS={RECORDS} " if RECORDS != 100_000 else ""
    print(
        f"`{many}python -m benchmarks.opensearch`: {RECORDS:,} documents of 1 KiB; medians of {REPEATS} turns, on"
        f" {os.cpu_count()} processors that the source's broker and the node share\n"
    )
    heading(COLUMNS)
    for writer in WRITERS:
        row(shown(writer, done))


if __name__ == "__main__":
    main()
