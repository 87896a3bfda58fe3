"""One partition of 21 is offline for good. Every run copies, verifies and advances the others, and names the sick one."""

from __future__ import annotations

import random
import time

from stack.kafka_cluster import Broker
from tests.faults import load
from tests.faults.bench import Bench, Side
from tests.faults.load import Load
from tests.faults.row import Row
from tests.faults.trial import Trial, TrialFailed
from tests.support.checker import high_watermark
from tests.support.scenario import Cluster
from tests.support.waiting import wait_until

HEALTHY, SICK = range(20), 20
RECORDS = 60  # of one partition at the beginning
RUNS = 3  # while the partition is away


def _spread(side: Cluster, topic: str) -> None:
    """Without replicas: the sick partition alone is on the third broker."""
    side.create(topic, assignment=[[1 + number % 2] for number in HEALTHY] + [[3]])


def _fill(side: Cluster, topic: str, seed: int) -> Load:
    dice = random.Random(seed)
    for partition in (*HEALTHY, SICK):
        side.produce(topic, load.numbered(dice, partition, 0, RECORDS), partition)
    return load.look(side, topic)


def on_three_brokers(bench: Bench, topic: str, seed: int) -> Load:
    source = bench.source.direct
    _spread(source, topic)
    return _fill(source, topic, seed)


def on_one_broker(bench: Bench, topic: str, seed: int) -> Load:
    source = bench.source.direct
    source.create(topic, len(HEALTHY) + 1)
    return _fill(source, topic, seed)


def source_partition_offline(trial: Trial) -> None:
    _runs_without(trial, trial.bench.source, trial.load.topic)


def target_partition_offline(trial: Trial) -> None:
    _spread(trial.bench.target.direct, trial.target_topic)
    _runs_without(trial, trial.bench.target, trial.target_topic)


def _runs_without(trial: Trial, side: Side, topic: str) -> None:
    trial.settings |= {"timeouts": {"request": 10}}
    broker, source = side.cluster.broker(2), trial.bench.source.direct
    trial.hit = time.monotonic()
    broker.kill()
    trial.note(f"killed {broker}")
    try:
        wait_until(lambda: side.admin.list_topics(topic, timeout=30).topics[topic].partitions[SICK].leader < 0)
        for number in range(RUNS):
            _one_run(trial)
            for partition in HEALTHY:
                first = RECORDS + 20 * number
                source.produce(trial.load.topic, load.numbered(trial.dice, partition, first, 20), partition)
    finally:
        _back(trial, side, broker)
    trial.load = load.look(source, trial.load.topic)


def _one_run(trial: Trial) -> None:
    """A run that does all but the sick partition, and names it."""
    source = trial.bench.source.direct.bootstrap
    ends = {partition: high_watermark(source, trial.load.topic, partition) for partition in HEALTHY}
    run = trial.start()
    outcome = trial.finish(run)
    trial.forgive(run)
    if outcome != "failed" or len(run.errors) != 1 or f"-{SICK} " not in run.errors[0]:
        raise TrialFailed(f"run {run.number}: {outcome}, and not the sick partition alone is named: {run.errors}")
    marks = trial.watermarks()
    behind = {partition: marks.get(partition) for partition, end in ends.items() if marks.get(partition) != end}
    if behind:
        raise TrialFailed(f"run {run.number}: healthy partitions are behind: {behind} of {ends}")


def _back(trial: Trial, side: Side, broker: Broker) -> None:
    broker.start()
    side.heal()
    trial.note(f"{broker} is back")


ROWS = (
    Row(
        "source-partition-offline",
        source_partition_offline,
        "core",
        own_load=True,
        load=on_three_brokers,
        bench=Bench.with_wide_source,
    ),
    Row(  # the sampler reads the target, of which a partition does not answer nearly all the time
        "target-partition-offline",
        target_partition_offline,
        "core",
        own_load=True,
        load=on_one_broker,
        sampled=False,
    ),
)
