"""Faults of the target's data: somebody else deletes, writes, or changes the topic."""

from __future__ import annotations

from tests.checker import read
from tests.faults.load import PARTITIONS
from tests.faults.row import Row
from tests.faults.trial import Trial, TrialFailed
from tests.integration.scenario import Rec

PART = 150


def deleted_before_verification(trial: Trial) -> None:
    """Copied, and gone before it could be read back."""
    run = trial.start(f"P3:{trial.dice.randrange(6, 40)}")
    if trial.finish(run) != "killed":
        raise TrialFailed("the run was to die after a commit")
    target = trial.bench.target
    found = [p for p in range(PARTITIONS) if read(target.direct.bootstrap, trial.target_topic, p)]
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


ROWS = (
    Row("target-data-deleted", deleted_before_verification, expected="unverifiable: ", sampled=False),
    Row("target-topic-deleted", topic_deleted, expected="was re-created or deleted", ignore=("lost",), sampled=False),
    Row("target-topic-recreated", topic_recreated, "core", "was re-created or deleted", ignore=("lost",), sampled=False),
    Row("target-topic-recreated-during", topic_recreated_during, "core", "was re-created or deleted", ignore=("lost",), sampled=False),
    Row("target-foreign-writer", foreign_writer, expected="that the ledger does not know", ignore=("foreign",)),
    Row("target-foreign-writer-during", foreign_writer_during, expected="that the ledger does not know", ignore=("foreign",)),
    Row("target-partitions-added", partitions_added),
    Row("target-compacted", compacted, expected="a compacted topic takes no record without a key"),
)
