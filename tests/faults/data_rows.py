"""Faults of the target's data: somebody else deletes, writes, or changes the topic."""

from __future__ import annotations

import time

from tests.faults import load, profiles
from tests.faults.judge import reported
from tests.faults.load import PARTITIONS
from tests.faults.row import Row
from tests.faults.trial import Trial, TrialFailed
from tests.support.checker import read
from tests.support.scenario import Cluster, Rec
from tests.support.waiting import wait_until

PART = 150 * profiles.current().longer
RECORDS = 400 * profiles.current().longer
DAY = 86_400_000


def deleted_before_verification(trial: Trial) -> None:
    """Copied, and gone before it could be read back."""
    run = trial.start(f"P3:{trial.dice.randrange(6, 40)}")
    if trial.finish(run) != "killed":
        raise TrialFailed("the run was to die after a commit")
    target, verified = trial.bench.target, reported(trial.bench, trial.name)
    found = [p for p in range(PARTITIONS) if p not in verified and read(target.direct.bootstrap, trial.target_topic, p)]
    partition = trial.dice.choice(found)
    target.delete_before(trial.target_topic, partition, trial.dice.randrange(1, 20))
    trial.limits[partition] = 0
    trial.note(f"partition {partition}: the first records are gone")


def topic_deleted(trial: Trial) -> None:
    trial.part(PART)
    trial.limits = trial.watermarks()
    trial.bench.target.direct.delete(trial.target_topic)


def topic_recreated(trial: Trial) -> None:
    topic_deleted(trial)
    _create(trial)


def topic_recreated_during(trial: Trial) -> None:
    run = trial.start()
    trial.middle(run)
    trial.bench.target.direct.delete(trial.target_topic)
    _create(trial)
    trial.note("re-created the target topic")
    if trial.finish(run) == "done":
        raise TrialFailed("all was copied before the topic was re-created")


def _create(trial: Trial, **config: str) -> None:
    trial.bench.target.direct.create(trial.target_topic, PARTITIONS, config, replicas=3)
    trial.bench.target.heal()


def _intrude(trial: Trial, partition: int) -> None:
    trial.bench.target.direct.produce(trial.target_topic, [Rec(b"foreign", b"foreign %d" % partition)], partition)


def foreign_writer(trial: Trial) -> None:
    """Between two runs."""
    trial.part(PART)
    partition = trial.dice.randrange(PARTITIONS)
    trial.limits[partition] = trial.watermarks()[partition]
    _intrude(trial, partition)


def foreign_writer_during(trial: Trial) -> None:
    """In between our records, while they are written."""
    producer = trial.bench.target.direct.producer()  # made before, or the copy is over when it is ready
    run = trial.start()
    trial.middle(run, most=8)
    for partition in range(PARTITIONS):
        producer.produce(trial.target_topic, b"foreign %d" % partition, b"foreign", partition)
    producer.flush(30)
    trial.finish(run)


def partitions_added(trial: Trial) -> None:
    trial.part(PART)
    trial.bench.target.direct.grow(trial.target_topic, PARTITIONS + 2)


def compacted(trial: Trial) -> None:
    """The target topic is compacted, the source is not: it takes no record without a key."""
    _create(trial, **{"cleanup.policy": "compact"})


def _old_load(trial: Trial, config: dict[str, str], keys: int, oldest: int, youngest: int) -> None:
    """Instead of the load: records from ``oldest`` to ``youngest`` days before now, ``keys`` different keys, no transactions."""
    source, topic = trial.bench.source.direct, f"{trial.load.topic}.old"
    first, step = int(time.time() * 1000) - oldest * DAY, (oldest - youngest) * DAY // RECORDS
    source.create(topic, PARTITIONS, config)
    for partition in range(PARTITIONS):
        records = (Rec(b"key-%d" % (n % keys), b"%d/%d" % (partition, n), (), first + n * step) for n in range(RECORDS))
        source.produce(topic, records, partition)
    trial.load, trial.target_topic = load.look(source, topic), f"{trial.name}.{topic}"
    if sum(map(len, trial.load.records.values())) != RECORDS * PARTITIONS:
        raise TrialFailed("the source itself has deleted some")


def _retention_has_run(side: Cluster, name: str) -> None:
    """Wait until every broker of the side has looked for what is too old, from now on: what it must delete is gone, twice."""
    for number in range(2):
        _see_deleted(side, f"{name}.canary{number}")


def _see_deleted(side: Cluster, topic: str) -> None:
    side.create(topic, PARTITIONS, {"retention.ms": "1"}, replicas=3)
    for partition in range(PARTITIONS):
        side.produce(topic, [Rec(b"canary", b"", (), load.FIRST_TIME)], partition)
    wait_until(lambda: not any(read(side.bootstrap, topic, partition) for partition in range(PARTITIONS)))
    side.delete(topic)


def retention_of_old_records(trial: Trial) -> None:
    """The source still has records older than its retention.ms, as a young one shares their segment: the target has to keep them too."""
    _old_load(trial, {"retention.ms": str(3 * DAY)}, RECORDS, oldest=9, youngest=2)
    run = trial.start(f"P3:{trial.dice.randrange(6, 40)}")
    trial.finish(run)
    _retention_has_run(trial.bench.target.direct, f"{trial.name}.1")
    run = trial.start()
    if trial.finish(run) != "done":
        raise TrialFailed(f"run {run.number}: {run.errors}")
    _retention_has_run(trial.bench.target.direct, f"{trial.name}.2")


def compaction_of_old_records(trial: Trial) -> None:
    """A compacted topic's records, older than min.compaction.lag.ms and not compacted on the source, are there until they are read back."""
    _old_load(trial, {"cleanup.policy": "compact"}, RECORDS // 20, oldest=20, youngest=19)
    trial.finish(trial.start(f"P3:{trial.dice.randrange(6, 40)}"))


ROWS = (
    Row("target-data-deleted", deleted_before_verification, expected="unverifiable: ", sampled=False),
    Row("target-topic-deleted", topic_deleted, expected="was re-created or deleted", ignore=("lost",), sampled=False),
    Row(
        "target-topic-recreated", topic_recreated, "core", "was re-created or deleted", ignore=("lost",), sampled=False
    ),
    Row(
        "target-topic-recreated-during",
        topic_recreated_during,
        "core",
        "was re-created or deleted",
        ignore=("lost",),
        sampled=False,
    ),
    Row("target-foreign-writer", foreign_writer, expected="that the ledger does not know", ignore=("foreign",)),
    Row(
        "target-foreign-writer-during",
        foreign_writer_during,
        expected="that the ledger does not know",
        ignore=("foreign",),
    ),
    Row("target-partitions-added", partitions_added),
    Row("target-retention-of-old-records", retention_of_old_records, own_load=True, sampled=False),
    Row("target-compaction-of-old-records", compaction_of_old_records, own_load=True, sampled=False),
    Row(
        "target-compacted",
        compacted,
        expected="a compacted topic takes no record without a key",
        refused=lambda record: record.key is None,
    ),
)
