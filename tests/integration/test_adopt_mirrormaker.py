"""MirrorMaker 2 itself, killed in mid-copy at random moments: its copy is adopted, nothing is lost, and nothing doubled by us."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runs import adopting
from kafka_replication.runs.adopting import MIRRORMAKER, Adoption
from kafka_replication.runs.run import open_run
from stack.artifacts import kafka_jars
from stack.java import java
from stack.ports import free_ports
from tests.support.checker import read
from tests.support.mirrored import check_groups
from tests.support.scenario import Scenario, numbered
from tests.support.waiting import SAFETY, wait_until

PARTITIONS, RECORDS, ABORTED = 3, 40_000, 2_000
QUIET = "rootLogger.level = ERROR\n"
# Small requests, so that it is killed before it has copied all.
PROPERTIES = """clusters = {alias}, b
{alias}.bootstrap.servers = {source}
b.bootstrap.servers = {target}
{alias}->b.enabled = true
b->{alias}.enabled = false
{alias}->b.topics = {topic}
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
{alias}->b.sync.topic.acls.enabled = false
{alias}.consumer.auto.offset.reset = earliest
{alias}.consumer.isolation.level = {isolation}
{alias}.consumer.max.poll.records = 500
b.producer.batch.size = 2000
b.producer.linger.ms = 0
b.producer.transaction.timeout.ms = 10000
b.offset.flush.interval.ms = {flush}
tasks.max = 2
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
"""
EXACTLY_ONCE = """b.exactly.once.source.support = enabled
dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:{port}
"""


def mirror(scene: Scenario, settings: Path, until: int) -> None:
    """MirrorMaker, killed once so many offsets are on the target."""
    quiet = settings.with_name("log4j2.properties")
    quiet.write_text(QUIET)
    command = [java(), "-Xmx400m", "-cp", f"{kafka_jars()}/*", f"-Dlog4j2.configurationFile={quiet}"]
    command += ["org.apache.kafka.connect.mirror.MirrorMaker", str(settings)]
    with settings.with_suffix(".log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=settings.parent)
    end = time.monotonic() + SAFETY
    try:
        while scene.target.size(scene.topic) < until and time.monotonic() < end:
            assert process.poll() is None, settings.with_suffix(".log").read_text()[-2000:]
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()


def drill(scene: Scenario, seed: int, *, exactly_once: bool) -> str:
    """One copy that is killed twice, adopted, and gone on with. Returns what was found."""
    chance, ends = random.Random(seed), range(PARTITIONS)
    scene.source.create(scene.topic, PARTITIONS)
    scene.target.create(scene.topic, PARTITIONS)
    for partition in ends:
        half = RECORDS // 2
        scene.source.produce(scene.topic, numbered(half, partition * 10**6), partition)
        scene.source.transaction(scene.topic, numbered(ABORTED, partition * 10**6 + RECORDS), partition, abort=True)
        scene.source.transaction(scene.topic, numbered(half, partition * 10**6 + half), partition)
    settings, reached = scene.folder / "mm2.properties", 0
    text = PROPERTIES.format(
        alias=scene.name,
        source=scene.source.bootstrap,
        target=scene.target.bootstrap,
        topic=scene.topic,
        flush=chance.randint(500, 4000),
        isolation=chance.choice(["read_committed", "read_uncommitted"]),
    )
    settings.write_text(text + (EXACTLY_ONCE.format(port=free_ports(1)[0]) if exactly_once else ""))
    for _ in range(2):  # the second one perhaps while records are repeated
        reached += chance.randint(1, PARTITIONS * RECORDS * 45 // 100)
        mirror(scene, settings, reached)
    wait_until(lambda: scene.target.is_settled([TopicPartition(scene.topic, partition) for partition in ends]))
    before = {partition: read(scene.target.bootstrap, scene.topic, partition) for partition in ends}
    run = open_run(scene.replication(), scene.connections, scene.store, "adopt")
    proved = {row.partition: row for row in adopting.preview(run, Adoption(from_=MIRRORMAKER, whole=True)).partitions}
    began = time.monotonic()
    done = {row.partition: row for row in adopting.adopt(run, Adoption(from_=MIRRORMAKER)).partitions}
    took, told = time.monotonic() - began, [f"seed {seed}, exactly once {exactly_once}"]
    assert scene.run().outcome == "done"
    for partition in ends:
        counted = Counter(record for _, record in before[partition])
        there = read(scene.target.bootstrap, scene.topic, partition)
        source = read(scene.source.bootstrap, scene.topic, partition)
        assert there[: len(before[partition])] == before[partition]
        ours = Counter(record for _, record in there[len(before[partition]) :])
        assert not ours & counted, "doubled by us"
        assert max(ours.values(), default=1) == 1
        assert not {record for _, record in source} - ours.keys() - counted.keys(), "missing"
        row, whole = done[partition], proved[partition]
        doubles = sum(counted.values()) - len(counted)
        if not before[partition]:
            assert row.state == "nothing to adopt", row
            continue
        assert row.state == "adopted" and row.adopted and whole.adopted, row
        assert row.start == whole.start and whole.adopted.doubles == doubles and whole.adopted.missing == 0
        told.append(
            f"  {row.source}: {len(before[partition])} records, {doubles} doubles; stored {row.stored}, start {row.start},"
            f" compared {row.adopted.compared}, aborted {whole.aborted}"
        )
        assert not exactly_once or not doubles
    again = check_groups(scene, PARTITIONS, chance)
    told.append(f"  groups read again at most: {sorted(again)}")
    return "\n".join([*told, f"  adopted in {took:.1f} s"])


@pytest.mark.slow
@pytest.mark.parametrize("exactly_once", [False, True], ids=["at least once", "exactly once"])
def test_it_was_killed_twice(scene: Scenario, exactly_once: bool) -> None:
    print(drill(scene, random.randrange(10**6), exactly_once=exactly_once))
