"""Consumer groups as an invariant: when a row is healed, a group goes on behind what it had read, and reads no more again than it is told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from confluent_kafka import Consumer, TopicPartition

from kafka_replication.model.choices import EXACTLY_ONCE
from tests.faults import profiles
from tests.faults.bench import Side
from tests.faults.trial import Trial, TrialFailed
from tests.support.checker import read

T = TypeVar("T")


def misplaced(trial: Trial) -> list[str]:
    """A group stands at a random offset of each source partition, and is moved: what is wrong with its places. Groups are moved in
    exactly-once copies of unchanged records in Kafka alone.
    """
    profile = profiles.current()
    changes = {"filter", "transform", "pipeline", "partitioning"} & trial.settings.keys()
    if trial.bench.elsewhere or changes or profile.newest or profile.delivery != EXACTLY_ONCE:
        return []
    source, target = (trial.bench.source, trial.load.topic), (trial.bench.target, trial.target_topic)
    group, stood = f"{trial.name}-group", {at: trial.dice.randint(0, end) for at, end in trial.load.ends.items()}
    places = [TopicPartition(source[1], at, offset) for at, offset in stood.items()]
    _as_member(source[0], group, lambda member: member.commit(offsets=places, asynchronous=False))
    trial.job["groups"] = True
    run = trial.start(groups={"include": [group]})
    del trial.job["groups"]
    if trial.finish(run) != "moved" or run.result is None:
        raise TrialFailed(f"the group {group} was not moved: {run.errors}")
    asked = [TopicPartition(target[1], at) for at in stood]
    there = {
        one.partition: one.offset for one in _as_member(target[0], group, lambda member: member.committed(asked, 30))
    }
    found = list[str]()
    for at, offset in stood.items():
        ours, before = {record for _, record in trial.load.wanted[at]}, trial.load.wanted_below(at, offset)
        passed = sum(
            1 for its, record in read(target[0].direct.bootstrap, target[1], at) if its < there[at] and record in ours
        )
        again = int(run.result["again"][str(at)])
        if not before - again <= passed <= before:
            found.append(
                f"partition {at}: a group had read {before} records, and goes on behind {passed}; {again} again was said"
            )
    return found


def _as_member(side: Side, group: str, do: Callable[[Consumer], T]) -> T:
    with closing(Consumer({"bootstrap.servers": side.direct.bootstrap, "group.id": group, "log_level": 0})) as member:
        return do(member)
