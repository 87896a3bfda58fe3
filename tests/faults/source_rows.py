"""Faults of the source: its broker, the way to it, its data."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import ElectionType, TopicPartition

from tests.faults import load, profiles
from tests.faults.bench import Bench
from tests.faults.kafka_tool import run_tool
from tests.faults.load import PARTITIONS, Load
from tests.faults.row import Row
from tests.faults.trial import Trial, TrialFailed
from tests.support.scenario import Rec, send

PART = 150 * profiles.current().longer


def broker_killed(trial: Trial) -> None:
    """In the middle of reading, and back after a while."""
    run = trial.start()
    trial.middle(run)
    broker = trial.bench.source.brokers[0]
    trial.note(f"killing {broker}")
    broker.kill()
    time.sleep(trial.dice.random() * 5)
    broker.start()
    trial.note(f"{broker} is back")
    trial.finish(run)


def slow(trial: Trial) -> None:
    """100 ms there and back, 3 Mbit/s."""
    proxy = trial.bench.source.proxies[0]
    proxy.delay(0.05)
    proxy.throttle(3e6 / 8)
    trial.finish(trial.start())


def connections_cut(trial: Trial) -> None:
    """Every second."""
    run = trial.start()
    deadline = time.monotonic() + 60
    while run.process.poll() is None and time.monotonic() < deadline:
        time.sleep(1)
        trial.bench.source.proxies[0].cut()
    trial.finish(run)


def leader_changes(trial: Trial) -> None:
    """All partitions at once get the leader that is their preferred one by now; no broker is away."""
    source, topic = trial.bench.source, trial.load.topic
    places = {number: [1 + (number + each) % 3 for each in (1, 2, 0)] for number in range(PARTITIONS)}
    _reassign(source.cluster.bootstrap, topic, places, trial.folder)
    run = trial.start()
    trial.middle(run)
    all_ = [TopicPartition(topic, number) for number in places]
    changed = source.admin.elect_leaders(ElectionType.PREFERRED, all_).result(30)
    if failed := [str(error) for error in changed.values() if error is not None]:
        raise TrialFailed(f"leaders could not be changed: {failed}")
    trial.note(f"the leaders are {[str(source.leader(topic, number)) for number in places]}")
    trial.finish(run)


def rolling_restart(trial: Trial) -> None:
    trial.survives_restarts(trial.bench.source)


def on_three_brokers(bench: Bench, topic: str, seed: int) -> Load:
    """Every partition has three replicas, and its leader is the first one of them."""
    source = bench.source.direct
    source.create(topic, assignment=[[1 + (number + each) % 3 for each in range(3)] for number in range(PARTITIONS)])
    load.fill(source, topic, seed)
    return load.look(source, topic)


def _reassign(bootstrap: str, topic: str, places: Mapping[int, Sequence[int]], folder: Path) -> None:
    """Change the order of replicas, and so the preferred leader. The client library has no request for it, so Kafka's
    own tool asks.
    """
    wanted = [{"topic": topic, "partition": number, "replicas": list(each)} for number, each in places.items()]
    file = folder / "reassignment.json"
    file.write_text(json.dumps({"version": 1, "partitions": wanted}))
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    run_tool(tool, "--bootstrap-server", bootstrap, "--reassignment-json-file", str(file), "--execute")


def retention_before(trial: Trial) -> None:
    """The next offset is gone before the next run."""
    trial.part(PART)
    partition = trial.dice.randrange(PARTITIONS)
    position = trial.watermarks()[partition]
    trial.limits[partition] = position
    trial.bench.source.delete_before(trial.load.topic, partition, position + trial.dice.randrange(1, 100))


def retention_during(trial: Trial) -> None:
    """The middle of ranges that are planned and not yet read is deleted while others are copied."""
    run = trial.start()
    trial.middle(run, most=12)
    for partition, end in trial.load.ends.items():
        trial.bench.source.delete_before(trial.load.topic, partition, end - trial.dice.randrange(1, 20))
    trial.note("deleted all but the ends")
    if trial.finish(run) == "done":
        raise TrialFailed("all was read before it was deleted: the row needs a longer load")


def _recreate(trial: Trial) -> None:
    source, topic = trial.bench.source.direct, trial.load.topic
    source.delete(topic)
    source.create(topic, PARTITIONS)
    load.fill(source, topic, trial.dice.randrange(10**6), first=10_000)
    trial.note("re-created the topic")


def recreated_before(trial: Trial) -> None:
    trial.part(PART)
    trial.limits = trial.watermarks()
    _recreate(trial)


def recreated_during(trial: Trial) -> None:
    run = trial.start()
    trial.middle(run)
    _recreate(trial)
    if trial.finish(run) == "done":
        raise TrialFailed("all was copied before the topic was re-created")


def truncated(trial: Trial) -> None:
    """The source's disk is restored from a backup, as far back as an unclean election would throw it."""
    source, topic = trial.bench.source, trial.load.topic
    broker = source.brokers[0]
    backup = trial.folder / "backup"
    broker.stop()
    shutil.copytree(broker.data, backup)
    broker.start()
    load.fill(source.direct, topic, trial.dice.randrange(10**6), blocks=2, first=20_000)
    trial.load = load.look(source.direct, topic)
    trial.whole()
    broker.stop()
    shutil.rmtree(broker.data)
    shutil.move(backup, broker.data)
    broker.start()
    trial.note("the source went back")


def partitions_added(trial: Trial) -> None:
    """The target follows, and the new ones are copied from their beginning."""
    trial.part(PART)
    source, topic = trial.bench.source.direct, trial.load.topic
    source.grow(topic, PARTITIONS + 2)
    source.produce(topic, load.numbered(trial.dice, PARTITIONS + 1, 0, 100), PARTITIONS + 1)
    trial.load = load.look(source, topic)
    run = trial.start()
    if trial.finish(run) != "done" or trial.bench.target.direct.partitions(trial.target_topic) != PARTITIONS + 2:
        raise TrialFailed(f"the target did not follow: {run.errors}")


def open_transaction(trial: Trial) -> None:
    """At the end of a partition: copied up to it, no further, and the rest once it is decided."""
    source, topic, partition = trial.bench.source.direct, trial.load.topic, trial.dice.randrange(PARTITIONS)
    stable = trial.load.ends[partition]
    somebody = source.transactional()
    somebody.begin_transaction()
    send(somebody, topic, [Rec(b"open-%d" % n, b"open", (), load.FIRST_TIME) for n in range(10)], partition)
    send(source.producer(), topic, load.numbered(trial.dice, partition, 30_000, 20), partition)
    trial.whole()
    if trial.watermarks()[partition] != stable:
        raise TrialFailed(f"the watermark is {trial.watermarks()[partition]}, the transaction begins at {stable}")
    (somebody.abort_transaction if trial.dice.randrange(2) else somebody.commit_transaction)(30)
    trial.load = load.look(source, topic)


def corrupted(trial: Trial) -> None:
    """A byte of a record changes on the source's disk. (Not any byte: some of a batch's header are outside its checksum, and what was
    aborted is not looked at.)"""
    trial.part(PART)
    partition = trial.dice.randrange(PARTITIONS)
    position = trial.watermarks()[partition]
    offset, record = trial.dice.choice(
        [(at, each) for at, each in trial.load.records[partition] if at >= position and len(each.value or b"") > 30]
    )
    segments = sorted((Path(trial.bench.source.brokers[0].data) / f"{trial.load.topic}-{partition}").glob("*.log"))
    file = [each for each in segments if int(each.stem) <= offset][-1]
    at = file.read_bytes().index((record.value or b"")[-8:])  # random bytes, which compression leaves as they are
    with file.open("r+b") as log:
        log.seek(at)
        log.write(b"x")
    trial.limits[partition] = offset
    trial.note(f"partition {partition}: changed the byte at {at}, of the record at offset {offset}")


ROWS = (
    Row("source-broker-killed", broker_killed, "core"),
    Row("source-retention-before", retention_before, "core", expected="can no longer be read", own_load=True),
    Row("source-retention-during", retention_during, "core", expected="can no longer be read", own_load=True),
    Row("source-recreated-before", recreated_before, "core", expected="the source topic was re-created", own_load=True),
    Row("source-recreated-during", recreated_during, "core", expected="the source topic was re-created", own_load=True),
    Row("source-slow", slow),
    Row(
        "source-leader-changes",
        leader_changes,
        "core",
        own_load=True,
        load=on_three_brokers,
        bench=Bench.with_wide_source,
    ),
    Row("source-rolling-restart", rolling_restart, own_load=True, load=on_three_brokers, bench=Bench.with_wide_source),
    Row("source-connections-cut", connections_cut),
    Row("source-truncated", truncated, expected="it was truncated after its records were copied", own_load=True),
    Row("source-partitions-added", partitions_added, own_load=True),
    Row("source-open-transaction", open_transaction, own_load=True),
    Row("source-corrupted-batch", corrupted, expected="is corrupted", own_load=True),
)
