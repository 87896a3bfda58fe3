"""The target loses the end of its log while a run is at work: what was verified is gone, and the run goes on.

A run halts at a failpoint. The broker that alone has the target topic is killed, the logs of some partitions are cut on
its disk, and it is started again; or a replica that had missed some records is elected. Each run after that is judged
as soon as it says that all is done.

Points, cuts and engines take turns with the seed: any twenty in a row have each of them. The dice choose the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kafka_replication.runtime import failpoints
from stack.kafka_cluster import Broker
from tests.faults import profiles
from tests.faults.attempt import Attempt
from tests.faults.judge import Judge
from tests.faults.load import PARTITIONS
from tests.faults.row import Row
from tests.faults.trial import Trial, TrialFailed
from tests.support.damage import Batch, batches, lose_from
from tests.support.waiting import wait_until

# A worker begins, a session begins, it has looked at the target, between two chunks, before a commit, while it is sent,
# and while others are read back. 7, 4 and 3 have no common divisor.
POINTS = ("W", "P0", "T1", "P3", "P1", "P2", "P4")
NOWHERE = ("P0", "P4")  # they do not know of which partition
CUTS = ("marker", "less", "more", "inside")
ENGINES = ("record", "batch", "auto")
HALF = 250 * profiles.current().longer  # offsets of a partition
RUNS = 8
CONTROL = 0x20  # bit of a batch's attributes
_ATTRIBUTES = 22  # place of their lower byte in the header


def _number(trial: Trial) -> int:
    return int(trial.seed.rpartition(":")[2])


def _prepared(trial: Trial, *, several: bool) -> Broker:
    """The broker that alone has the target topic; its first half is copied and verified."""
    broker, number = trial.dice.choice(trial.bench.target.brokers), _number(trial)
    trial.copy |= {"engine": ENGINES[number % len(ENGINES)], "transaction_timeout": 60}
    partitions = 1 if several else PARTITIONS  # where one of two loses a part of a chunk, it is left to a person
    if several:
        trial.settings |= {"partitioning": "by_key", "target_topics": {"partitions": partitions}}
    assignment, config = [[broker.node_id]] * partitions, {"min.insync.replicas": "1"}
    trial.bench.target.direct.create(trial.target_topic, config=config, assignment=assignment)
    trial.part(HALF)
    return broker


def _halted(trial: Trial) -> tuple[Attempt, Path, int]:
    """A run that halts at the point whose turn it is, at the partition that is returned or, if it does not say where, any."""
    point, partition, gate = (
        POINTS[_number(trial) % len(POINTS)],
        trial.dice.randrange(PARTITIONS),
        trial.folder / "gate",
    )
    where = "" if point in NOWHERE else f"@{trial.key(partition).source}"
    turn = trial.dice.choice((1, 2)) if point in ("P1", "P2", "P3") else 1
    gate.touch()
    run = trial.start(f"{point}{where}:{turn}={gate}")
    wait_until(lambda: failpoints.at_gate(gate).exists() or run.ended)
    if run.ended:
        raise TrialFailed(f"{point}{where} was not reached {turn} times: {run.end()} {run.errors}")
    trial.note(f"run {run.number} halts at {point}{where}, turn {turn}, engine {trial.copy['engine']}")
    return run, gate, partition


def _cut(trial: Trial, broker: Broker, partition: int) -> None:
    """Cut a target partition's log, on the disk of this broker, which does not run."""
    kind = CUTS[_number(trial) % len(CUTS)]
    found = batches(broker.data, trial.target_topic, partition)
    if len(found) < 2:
        raise TrialFailed(f"partition {partition} of the target has {len(found)} batches")
    markers = [batch for batch in found if _is_marker(batch)]
    lost = {
        "marker": markers[-1] if markers else found[-1],
        "less": found[-2],
        "more": trial.dice.choice(found[: max(1, len(found) // 4)]),
        "inside": trial.dice.choice(found[len(found) // 2 :]),
    }[kind]
    kept = trial.dice.randrange(1, lost.size) if kind == "inside" else 0
    end = lose_from(broker.data, trial.target_topic, partition, lost.first, kept)
    trial.note(f"partition {partition} of the target ended at {found[-1].last + 1}, and ends at {end} now ({kind})")


def _is_marker(batch: Batch) -> bool:
    return bool(batch.read()[_ATTRIBUTES] & CONTROL)


def _go_on(trial: Trial, run: Attempt, gate: Path) -> None:
    gate.unlink()
    _judge(trial, run)
    for _ in range(RUNS):
        if trial.final_errors():
            return  # `heal` says which
        run = trial.start()
        if _judge(trial, run) == "nothing_to_do":
            return
    raise TrialFailed(f"{RUNS} runs after it there is still something to do: {run.errors}")


def _judge(trial: Trial, run: Attempt) -> str:
    """A run that says that all is done has lost, doubled and reordered nothing; nor has one that stands still."""
    outcome = trial.finish(run)
    if outcome == "failed":
        return outcome
    trial.bench.target.heal()
    judge = Judge(trial.bench, trial.load, trial.watermarks(), complete=True, spread=trial.spread)
    for partition, found in judge.judge(trial.target_topic, trial.quarantine_topic).items():
        if not found.clean:
            raise TrialFailed(f"run {run.number} says {outcome}, but of partition {partition}: {found}")
    return str((run.result or {}).get("outcome", outcome))


def lost_during(trial: Trial, *, several: bool = False, tries: int = 0) -> None:
    """``several`` source partitions have one target partition. With ``tries`` the run is made as the tasks of a
    DAG are: the plan stays, and what failed is tried again.
    """
    trial.job |= {"tries": tries} if tries else {}
    broker = _prepared(trial, several=several)
    run, gate, partition = _halted(trial)
    broker.kill()
    places = [0] if several else _some(trial, partition)
    trial.note(f"killed {broker}")
    for at in places:
        _cut(trial, broker, at)
    broker.start()
    trial.bench.target.heal()
    _go_on(trial, run, gate)


def _some(trial: Trial, partition: int) -> Sequence[int]:
    """This one and two others."""
    others = [number for number in range(PARTITIONS) if number != partition]
    return [partition, *trial.dice.sample(others, 2)]


def elected_during(trial: Trial) -> None:
    """One of two replicas misses what is verified, and is the only one there when the other one dies."""
    number, target = _number(trial), trial.bench.target
    trial.copy |= {"engine": ENGINES[number % len(ENGINES)], "transaction_timeout": 120}
    leader, follower = trial.dice.sample(target.brokers, 2)
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    ids = [leader.node_id, follower.node_id]
    target.direct.create(trial.target_topic, config=config, assignment=[ids] * PARTITIONS)
    trial.part(HALF // 3)
    follower.kill()
    wait_until(lambda: _in_sync(trial) == {leader.node_id})
    trial.part(HALF // 3)
    run, gate, _ = _halted(trial)
    leader.kill()
    follower.start()
    wait_until(lambda: _in_sync(trial) == {follower.node_id})
    trial.note(f"{follower} was elected, which had missed a third")
    leader.start()
    target.heal()
    _go_on(trial, run, gate)


def _in_sync(trial: Trial) -> set[int]:
    topics = trial.bench.target.admin.list_topics(trial.target_topic, timeout=30).topics
    return {replica for one in topics[trial.target_topic].partitions.values() for replica in one.isrs}


ROWS = (
    Row("target-end-lost-during", lost_during, sampled=False),
    Row("target-end-lost-during-several", partial(lost_during, several=True), sampled=False),
    Row("target-end-lost-during-tried-again", partial(lost_during, tries=4), sampled=False),
    Row("target-end-lost-during-several-tried-again", partial(lost_during, several=True, tries=4), sampled=False),
    Row("target-end-lost-during-elected", elected_during, sampled=False),
)
