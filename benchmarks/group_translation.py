"""``python -m benchmarks.group_translation``: how often the place of a consumer group is exact, and what that costs.

First RECORDS (default 300,000) of each kind of topic are copied, and as many committed offsets as GROUPS (default
1,000), at random, are translated: the share that is exact, how many records the others read again at most, and how many
bytes the receipts grew by. Each answer is compared with the records of both sides: it ends with code 1 if one skips a
record, or reads more again than was said. Then the seconds of moving GROUPS groups, each with committed offsets in
PARTITIONS (default 50) partitions: a plan, the commits, and a look after which nothing is to be done.
"""

from __future__ import annotations

import os
import random
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import clusters
from benchmarks.tables import heading, row
from kafka_replication.kafka import groups as kafka_groups
from kafka_replication.kafka import offsets
from kafka_replication.kafka.groups import Committed
from kafka_replication.ledger import codec
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.planning.group_places import GroupPlaces, Translated
from kafka_replication.planning.snapshot import PartitionOffsets
from kafka_replication.runs import groups
from kafka_replication.runtime import stopping
from tests.support import session_folder
from tests.support.checker import read
from tests.support.scenario import Cluster, Rec, Scenario, send
from tests.support.waiting import wait_until

RECORDS, GROUPS = int(os.environ.get("RECORDS", "300000")), int(os.environ.get("GROUPS", "1000"))
PARTITIONS = int(os.environ.get("PARTITIONS", "50"))
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "2000",
    "max.compaction.lag.ms": "2000",
}
KINDS = ("kind", "records copied", "exact", "others: again at most, mean", "receipts, bytes", "of these maps")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of topic: how many records a transaction has (0: none), and the settings of the file and of the topic."""

    each: int = 0
    records: int = RECORDS
    file: Mapping[str, Any] = field(default_factory=dict)
    topic: Mapping[str, str] = field(default_factory=dict)
    compacted_after: bool = False  # else before it is copied


SIZES = {"failures": {"policy": "quarantine"}, "target_topics": {"config": {"max.message.bytes": 900}}}
OF_KINDS = {
    "no holes": Kind(),
    "transactions of 100, one in five aborted": Kind(each=100),
    "transactions of 10, one in five aborted": Kind(each=10, records=RECORDS // 5),
    "compacted before it was copied": Kind(topic=COMPACTED),
    "compacted after it was copied": Kind(topic=COMPACTED, compacted_after=True),
    "a filter drops one in ten": Kind(file={"filter": "!ends_with(key, '7')"}),
    "a filter keeps one in ten": Kind(file={"filter": "ends_with(key, '7')"}),
    "one in a thousand set aside": Kind(file=SIZES),
}


def records(kind: Kind, chance: random.Random) -> Iterator[Rec]:
    """Their last digits, and what is set aside, are at random; keys come again where the topic is compacted."""
    for number in range(kind.records):
        last = b"%d" % chance.randrange(10)
        key = b"%d" % chance.randrange(kind.records // 3) if kind.topic else b"%d" % number + last
        large = kind.file is SIZES and chance.random() < 0.001
        value = b"%d " % number + (chance.randbytes(2_000) if large else b"x" * 20)
        yield Rec(key, value, (), 1_700_000_000_000 + number)


def fill(scene: Scenario, kind: Kind) -> None:
    chance = random.Random(1)
    scene.source.create(scene.topic, 1, config=kind.topic)
    made = [*records(kind, chance)]
    if not kind.each:
        return scene.source.produce(scene.topic, made, linger_ms=50)
    producer = scene.source.transactional()
    for first in range(0, len(made), kind.each):
        producer.begin_transaction()
        send(producer, scene.topic, made[first : first + kind.each])
        (producer.abort_transaction if chance.random() < 0.2 else producer.commit_transaction)(60)
    return None


def await_compaction(scene: Scenario) -> None:
    """Segments end when a much later record is appended."""
    scene.source.produce(scene.topic, [Rec(b"last", b"last", (), 1_750_000_000_000)])
    wait_until(lambda: len(read(scene.source.bootstrap, scene.topic, 0)) < RECORDS * 2 // 3)


def measured(scene: Scenario, name: str, kind: Kind) -> tuple[Sequence[object], int]:
    """The row of one kind, and how many of its answers are wrong."""
    scene.settings |= {**kind.file, "copy": {"chunk_records": 100_000}}
    fill(scene, kind)
    if kind.topic and not kind.compacted_after:
        await_compaction(scene)
    at_source = {record.value: offset for offset, record in read(scene.source.bootstrap, scene.topic, 0)}
    if scene.run().outcome == "failed":
        raise SystemExit("a run failed")
    if kind.compacted_after:
        await_compaction(scene)
    copies = [(at_source[record.value], offset) for offset, record in read(scene.target.bootstrap, scene.topic, 0)]
    places, receipts = _places(scene)
    chance, end = random.Random(2), scene.position().next_offset
    asked = [chance.randint(0, end) for _ in range(GROUPS)]
    answers = [(offset, places.translate(offset)) for offset in asked]
    wrong = sum(_is_wrong(copies, offset, answer) for offset, answer in answers)
    again = [answer.again for _, answer in answers if answer.again]
    exact = f"{100 * (len(answers) - len(again)) / len(answers):.1f} %"
    maps, whole = receipts
    return (name, len(copies), exact, mean(again) if again else 0, whole, maps), wrong


def _places(scene: Scenario) -> tuple[GroupPlaces, tuple[int, int]]:
    """The places of partition 0; the bytes of the maps in its receipts, and of the receipts."""
    run, key = scene.bare_run("groups"), scene.key()
    receipts = run.clusters.ledger.receipts({key: None})
    log = offsets.all_three(scene.target.admin, [key.target])[key.target]
    assert isinstance(log, PartitionOffsets)
    found = receipts.all(key)
    whole = sum(len(codec.encode(receipt)) for receipt in found)
    bare = sum(len(codec.encode(replace(receipt, offset_map=None))) for receipt in found)
    places = GroupPlaces.of(run.view()[key], receipts, OffsetRange(log.log_start, log.high_watermark))
    return places, (whole - bare, whole)


def _is_wrong(copies: Sequence[tuple[int, int]], committed: int, answer: Translated) -> bool:
    """``copies`` are the source and target offsets of all records on the target, in order."""
    first = bisect_left(copies, (committed, 0))
    at = bisect_left(copies, answer.offset, key=lambda copy: copy[1])
    return at > first or first - at > answer.again


def moved(scene: Scenario) -> Iterator[tuple[str, float]]:
    """The seconds of each step of moving many groups."""
    scene.source.create(scene.topic, PARTITIONS)
    scene.settings |= {"copy": {"chunk_records": 1000}, "groups": {"include": [f"^{scene.name}"]}}
    producer = scene.source.transactional()
    for number in range(20):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            send(producer, scene.topic, (Rec(b"k", b"%d %d" % (number, n)) for n in range(20)), partition)
        (producer.abort_transaction if number % 5 == 4 else producer.commit_transaction)(60)
    if scene.run(groups={}).outcome == "failed":
        raise SystemExit("a run failed")
    chance = random.Random(3)
    for number in range(GROUPS):
        at = {TopicPartition(scene.topic, n): Committed(chance.randint(0, 400)) for n in range(PARTITIONS)}
        kafka_groups.commit(scene.source.admin, f"{scene.name}-{number}", at)
    for name, apply in (("plan", False), ("apply", True), ("apply, nothing to do", True)):
        started = time.monotonic()
        document = groups.move(scene.bare_run("groups"), apply=apply)
        taken = time.monotonic() - started
        places = [place for one in document.groups for place in one.partitions]
        if len(places) != GROUPS * PARTITIONS or {place.state for place in places} & {"refused", "waiting"}:
            raise SystemExit(document.text())
        yield name, taken


def main() -> None:
    stopping.on_signals()
    session_folder.create()
    wrong = 0
    try:
        with clusters.plain() as pair:

            def scene(name: str) -> Scenario:
                folder: Path = pair.folder / name
                folder.mkdir()
                source, target = (Cluster(cluster.bootstrap) for cluster in pair.clusters)
                return Scenario(source, target, folder)

            heading(KINDS)
            for number, (name, kind) in enumerate(OF_KINDS.items()):
                cells, mistakes = measured(scene(f"kind-{number}"), name, kind)
                wrong += mistakes
                row(cells)
            print()
            heading((f"{GROUPS:,} groups x {PARTITIONS} partitions", "seconds"))
            for step in moved(scene("moved")):
                row(step)
    finally:
        session_folder.remove()
    sys.exit(f"{wrong} places skip a record, or read more again than was said" if wrong else 0)


if __name__ == "__main__":
    main()
