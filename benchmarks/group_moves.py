"""``python -m benchmarks.group_moves``: consumer groups moved under load, with random stops of everything, and
MirrorMaker 2's own translation of the same groups beside ours.

TRIALS (default 20) of all shapes in turn, from SEED (default 1) on. In each one a producer writes numbered records of
its shape (transactions and aborts, compaction, a filter, records that are set aside, renamed), members read and commit
at the source, and runs, members and the target's broker are killed at random. Then the groups are moved, the rest is
copied, and real consumers (confluent-kafka and Java's console consumer, both protocols) read on on the target. A reader
without the product counts the records that each of them missed and read again. Ends with code 1 if one of ours missed
a record, or read more again than was said.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from benchmarks import clusters, mirrormaker
from benchmarks.tables import heading, row
from kafka_replication.documents import GroupRow
from kafka_replication.kafka import groups as kafka_groups
from kafka_replication.runs import groups
from kafka_replication.runtime import stopping
from stack.artifacts import kafka_jars
from stack.java import java
from tests.support import session_folder
from tests.support.checker import read
from tests.support.children import run_process
from tests.support.scenario import Cluster, Scenario
from tests.support.waiting import wait_until

PARTITIONS = 2
FAST = {"min.cleanable.dirty.ratio": "0.001", "segment.ms": "1000", "max.compaction.lag.ms": "1000"}
SHAPES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {  # the file's settings, and those of the source topic
    "transactions": ({}, {}),
    "compacted": ({}, {"cleanup.policy": "compact", **FAST}),
    "filter": ({"filter": "!ends_with(key, '7')"}, {}),
    "set aside": ({"failures": {"policy": "quarantine"}, "target_topics": {"config": {"max.message.bytes": 900}}}, {}),
    "renamed": ({"topics": {"rename": "dr.{topic}"}}, {}),
}
COLUMNS = ("missed", "again", "said at most", "exact groups")
READERS = ("confluent classic", "confluent consumer", "java classic", "java consumer")
MIRROR = """{alias}->dst.groups = ^it-.*
{alias}->dst.sync.group.offsets.enabled = true
{alias}->dst.emit.checkpoints.enabled = true
{alias}->dst.emit.checkpoints.interval.seconds = 1
{alias}->dst.sync.group.offsets.interval.seconds = 1
{alias}->dst.refresh.groups.interval.seconds = 1
checkpoints.topic.replication.factor = 1
"""


@dataclass
class Load:
    """Producers of numbered records, and members that read and commit, at the source until it is closed."""

    scene: Scenario
    shape: str
    chance: random.Random
    offsets: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # by value: partition and source offset
    over: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Load:
        jobs = [self._produce, *(lambda name=name: self._consume(name) for name in READERS)]
        self.threads = [threading.Thread(target=job) for job in jobs]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()

    def _produce(self) -> None:
        producer, number, clock = self.scene.source.transactional(), 0, 1_700_000_000_000

        def told(error: KafkaError | None, message: Any) -> None:
            if error is None:
                self.offsets[message.value()] = message.partition(), message.offset()

        while not self.over.is_set():
            producer.begin_transaction()
            for _ in range(self.chance.randrange(1, 400)):
                number, clock = number + 1, clock + 20
                large = self.shape == "set aside" and number % 499 == 0
                key = b"%d" % (number * number % 997 if self.shape == "compacted" else number)
                value = b"%d " % number + (self.chance.randbytes(2_000).hex().encode() if large else b"x" * 20)
                producer.produce(self.scene.topic, value, key, number % PARTITIONS, timestamp=clock, on_delivery=told)
            producer.flush()
            try:
                (producer.abort_transaction if self.chance.random() < 0.2 else producer.commit_transaction)(60)
            except KafkaException:  # a record was not acknowledged in time on this busy machine
                producer.abort_transaction(60)
            self.over.wait(0.05)  # some thousand records a second, so that the others get a processor

    def _consume(self, name: str) -> None:
        """Members that are stopped now and then, some of them without a last commit."""
        chance = random.Random(self.chance.random())
        while not self.over.is_set():
            consumer = member(self.scene.source, group_of(self.scene, name), name.split()[1])
            consumer.subscribe([self.scene.topic])
            until = time.monotonic() + chance.uniform(2, 6)
            with suppress(KafkaException):
                while time.monotonic() < until and not self.over.is_set():
                    messages = consumer.consume(chance.randrange(1, 300), 0.2)
                    if messages and chance.random() < 0.7:
                        consumer.commit(asynchronous=False)
            consumer.close()


def group_of(scene: Scenario, reader: str) -> str:
    return f"{scene.name}-{reader.replace(' ', '-')}"


def member(cluster: Cluster, group: str, protocol: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )


def rest_of(scene: Scenario, reader: str, topic: str, folder: Path) -> list[bytes]:
    """The values that a real consumer of the group reads on the target, from where it was moved to, up to the end."""
    client, protocol = reader.split()
    if client == "java":
        return _java(scene, reader, topic, protocol, folder)
    consumer, values, ended = member(scene.target, group_of(scene, reader), protocol), list[bytes](), set[int]()
    consumer.subscribe([topic])

    def done() -> bool:
        for message in consumer.consume(500, 0.2):
            if (error := message.error()) is None:
                values.append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
        return len(consumer.assignment()) == PARTITIONS == len(ended)

    wait_until(done)
    consumer.close()
    return values


def _java(scene: Scenario, reader: str, topic: str, protocol: str, folder: Path) -> list[bytes]:
    settings = folder / f"{reader.replace(' ', '-')}.properties"
    settings.write_text(
        f"group.protocol={protocol}\nisolation.level=read_committed\nauto.offset.reset=earliest\n"
        f"group.id={group_of(scene, reader)}\n"
    )
    command = [java(), "-Xmx200m", "-cp", f"{kafka_jars()}/*", "org.apache.kafka.tools.consumer.ConsoleConsumer"]
    command += ["--bootstrap-server", scene.target.bootstrap, "--topic", topic, "--timeout-ms", "15000"]
    done = subprocess.run([*command, "--consumer.config", str(settings)], capture_output=True, check=False)
    return [line for line in done.stdout.splitlines() if line[:1].isdigit()]


@dataclass(frozen=True)
class Counted:
    """What one group missed, and read again; and how much of that was said."""

    missed: int
    again: int
    said: int
    exact: bool


def trial(pair: clusters.Pair, seed: int) -> tuple[str, dict[str, Counted], dict[str, Counted]]:
    """One trial: its shape, and what the readers of ours and of MirrorMaker missed and read again."""
    chance = random.Random(seed)
    shape = [*SHAPES][seed % len(SHAPES)]
    folder = pair.folder / f"trial-{seed}"
    folder.mkdir()
    source, target = (Cluster(cluster.bootstrap) for cluster in pair.clusters)
    scene = Scenario(source, target, folder)
    file, topic_settings = SHAPES[shape]
    scene.settings |= {**file, "groups": {"include": [f"^{scene.name}"]}, "copy": {"chunk_records": 20_000}}
    scene.settings["topics"] = {"include": [scene.topic], **file.get("topics", {})}
    scene.source.create(scene.topic, PARTITIONS, config=topic_settings)
    copy = scene.replication().target_name(scene.topic)
    mirror = mirrormaker.running(pair, scene.topic, scene.name, MIRROR.format(alias=scene.name))
    with Load(scene, shape, chance) as load, mirror:
        for _ in range(4):
            run = run_process(scene, at_once=2)
            time.sleep(chance.uniform(1, 5))  # the random moment of a kill
            run.send_signal(signal.SIGKILL)
            run.wait()
        broker = pair.clusters[1].broker(0)
        broker.kill()
        broker.start()
        broker.wait_started(time.monotonic() + 120)
        wait_until(lambda: scene.run().outcome != "failed")
        time.sleep(chance.uniform(1, 3))
        load.end()
        if ran := chance.random() < 0.5:
            wait_until(lambda: scene.run().outcome != "failed")  # else the groups are further than what is verified
        rows = {row.group: row for row in groups.move(scene.bare_run("groups"), apply=True).groups}
        for place in (place for one in rows.values() for place in one.partitions if place.why):
            print(f"seed {seed}: {place}", file=sys.stderr)
        committed, _ = kafka_groups.committed(scene.source.admin, [group_of(scene, name) for name in READERS])
        assert scene.run(groups={}).outcome != "failed"
        ours = {}
        for name in READERS:
            values = rest_of(scene, name, copy, folder)
            ours[name] = counted(scene, load, name, copy, values, committed, rows)
        theirs = mirror_counts(scene, load, committed)
    return f"{shape}, {'after' if ran else 'before'} a last run", ours, theirs


Commits = dict[str, dict[Any, Any]]


def expected(scene: Scenario, load: Load, name: str, topic: str, committed: Commits) -> tuple[set[bytes], set[bytes]]:
    """The values on the target that the group has not read at the source, and all values that it has."""
    places = {at.partition: place.offset for at, place in committed.get(group_of(scene, name), {}).items() if place}
    not_read = {
        record.value or b""
        for partition, place in places.items()  # a partition without a commit: where the group begins is its own affair
        for _, record in read(scene.target.bootstrap, topic, partition)
        if load.offsets[record.value or b""][1] >= place
    }
    was_read = {value for value, (partition, offset) in load.offsets.items() if offset < places.get(partition, 0)}
    return not_read, was_read


def counted(
    scene: Scenario,
    load: Load,
    name: str,
    topic: str,
    values: Sequence[bytes],
    committed: Commits,
    rows: dict[str, GroupRow],
) -> Counted:
    not_read, was_read = expected(scene, load, name, topic, committed)
    found, item = set(values), rows.get(group_of(scene, name))
    assert len(found) == len(values), "a value came twice"
    said = item.again if item else 0
    return Counted(len(not_read - found), len(was_read & found), said, said == 0)


def mirror_counts(scene: Scenario, load: Load, committed: Commits) -> dict[str, Counted]:
    """The same of MirrorMaker, by its committed offsets: once it has copied everything, and ten seconds later."""
    topic = f"{scene.name}.{scene.topic}"
    last = {read(scene.source.bootstrap, scene.topic, number)[-1][1].value for number in range(PARTITIONS)}
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(Exception):
            copies = (read(scene.target.bootstrap, topic, number) for number in range(PARTITIONS))
            if last <= {record.value for some in copies for _, record in some}:  # aborted ones may come behind it
                break
        time.sleep(1)
    time.sleep(10)
    names = [group_of(scene, name) for name in READERS]
    places, _ = kafka_groups.committed(scene.target.admin, names)
    counts = dict[str, Counted]()
    for name in READERS:
        not_read, was_read = expected(scene, load, name, topic, committed)
        mine = places[group_of(scene, name)].items()
        own = {at.partition: place.offset for at, place in mine if at.topic == topic and place}
        found = [
            record.value or b""
            for number, first in own.items()
            for offset, record in read(scene.target.bootstrap, topic, number)
            if offset >= first
        ]
        synced = set(own) >= {at.partition for at in committed.get(group_of(scene, name), {})}
        if synced:
            doubles = len(found) - len(set(found))
            counts[name] = Counted(len(not_read - set(found)), len(was_read & set(found)) + doubles, 0, exact=False)
    return counts


def main() -> None:
    stopping.on_signals()
    session_folder.create()
    first, wrong = int(os.environ.get("SEED", "1")), 0
    total = defaultdict[str, list[Counted]](list)
    heading(("seed", "shape", *COLUMNS, *(f"MirrorMaker: {name}" for name in ("missed", "again", "groups"))))
    try:
        with clusters.plain() as pair:
            for seed in range(first, first + int(os.environ.get("TRIALS", "20"))):
                shape, ours, theirs = trial(pair, seed)
                total["ours"] += ours.values()
                total["theirs"] += theirs.values()
                wrong += sum(one.missed > 0 or one.again > one.said for one in ours.values())
                row((seed, shape, *_sums(ours.values()), *_sums(theirs.values())[:2], len(theirs)))
            row(("all", "", *_sums(total["ours"]), *_sums(total["theirs"])[:2], len(total["theirs"])))
    finally:
        session_folder.remove()
    sys.exit(f"{wrong} groups missed a record, or read more again than was said" if wrong else 0)


def _sums(counts: Iterable[Counted]) -> tuple[str, str, str, str]:
    some = list(counts)
    return (
        str(sum(one.missed for one in some)),
        str(sum(one.again for one in some)),
        str(sum(one.said for one in some)),
        f"{sum(one.exact for one in some)} of {len(some)}",
    )


if __name__ == "__main__":
    main()
