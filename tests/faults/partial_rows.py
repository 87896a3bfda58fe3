"""The target is left half done by an outage: a commit without one of its partitions, or a log without its end.

All replicas of a partition of the target die: there is one, or there are two. The ledger and the coordinators have more.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence, Set
from contextlib import closing
from functools import partial
from typing import Any

from confluent_kafka import Producer
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse
from kio.schema.types import TransactionalId

from kafka_replication.kafka import offsets
from kafka_replication.kafka.brokers import security_of
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.errors import Unreachable
from kafka_replication.model.offsets import LEDGER_PARTITIONS, TopicPartition
from kafka_replication.runtime import failpoints
from kafka_replication.runtime.events import Event
from kafka_replication.wire.connection import Connection
from stack.kafka_cluster import Broker
from stack.ports import LOOPBACK
from tests.faults import profiles
from tests.faults.attempt import Attempt
from tests.faults.bench import Bench
from tests.faults.load import PARTITIONS
from tests.faults.row import Row
from tests.faults.trial import Trial, TrialFailed
from tests.support.waiting import wait_until

CHUNKS = 8  # of one partition; a range has some ten
HALF = 250 * profiles.current().longer  # offsets of a partition


def _alone(trial: Trial, replicas: int = 1) -> Sequence[Broker]:
    """The brokers that alone have the target topic; where each chunk lies in several partitions, one of these. Each
    of two leads half of it.
    """
    dying, config = trial.dice.sample(trial.bench.target.brokers, replicas), {"min.insync.replicas": "1"}
    ids = [broker.node_id for broker in dying]
    assignment = [ids if number % 2 else ids[::-1] for number in range(PARTITIONS)]
    if profiles.current().spread:
        others = [one.node_id for one in trial.bench.target.brokers if one not in dying]
        assignment = [trial.dice.sample(others, replicas) for _ in range(profiles.SPREAD)]
        assignment[trial.dice.randrange(len(assignment))] = ids
    trial.bench.target.direct.create(trial.target_topic, config=config, assignment=assignment)
    return dying


def _kill(trial: Trial, dying: Sequence[Broker]) -> None:
    """At the same time, or each when the cluster has noticed that the one before is gone. In the end it knows of all."""
    in_turn = len(dying) > 1 and trial.dice.random() < 0.5
    for broker in dying:
        broker.kill()
        trial.note(f"killed {broker}")
        if in_turn:
            _until_noticed(trial, {broker.node_id})
    _until_noticed(trial, {broker.node_id for broker in dying})


def _until_noticed(trial: Trial, gone: Set[int]) -> None:
    admin = trial.bench.target.admin
    wait_until(lambda: not gone & {one.id for one in admin.list_topics(timeout=30).brokers.values()})


def _committed_without(trial: Trial, dying: Sequence[Broker], partition: int, **copy: Any) -> Attempt:
    """A run that has committed a chunk of this partition after these brokers died."""
    trial.copy["transaction_timeout"] = 60  # the commit waits until the cluster has noticed that they are gone
    turn, gate = trial.dice.randrange(1, CHUNKS), trial.folder / "gate"
    gate.touch()
    run = trial.start(f"P2@{trial.key(partition).source}:{turn}={gate}", copy={**trial.copy, **copy})
    wait_until(lambda: failpoints.at_gate(gate).exists() or run.ended)
    trial.note(f"run {run.number} halts before commit {turn} of partition {partition}")
    _kill(trial, dying)
    known = _chunks(run, trial.key(partition).source)
    gate.unlink()
    wait_until(lambda: _chunks(run, trial.key(partition).source) > known or run.ended)
    if _chunks(run, trial.key(partition).source) == known:
        raise TrialFailed(f"run {run.number} did not commit: {run.errors}")
    return run


def _chunks(run: Attempt, source: TopicPartition) -> int:
    """How many chunks of this partition the run has committed: those of others go on without the broker."""
    return sum(f" {source}: " in line and str(Event.CHUNK_COMMITTED) in line for line in run.text.splitlines())


def _hidden(trial: Trial) -> Collection[TopicPartition]:
    number = trial.bench.target.direct.partitions(trial.target_topic)
    places = [TopicPartition(trial.target_topic, partition) for partition in range(number)]
    places += [TopicPartition(topic, number) for topic in (POSITIONS, RECEIPTS) for number in range(LEDGER_PARTITIONS)]
    admin = trial.bench.target.admin
    stable, ends = offsets.last_stable(admin, places), offsets.high_watermarks(admin, places)
    return [at for at in places if stable[at] < ends[at]]


def _back(trial: Trial) -> None:
    trial.bench.target.heal()
    trial.note(f"all brokers are back; hidden: {', '.join(map(str, _hidden(trial)))}")
    if not _hidden(trial):
        raise TrialFailed("nothing is hidden: the commit was not partial")


def _is_mended(trial: Trial) -> None:
    _has_mended(trial, trial.start())


def _has_mended(trial: Trial, run: Attempt) -> None:
    """The run is green, and says what it mended."""
    trial.finish(run)
    notes = (run.result or {}).get("notes", ())
    if (run.result or {}).get("outcome") != "done" or not notes or str(Event.MENDED) not in run.text:
        raise TrialFailed(f"run {run.number} did not mend it: {run.result}")
    trial.note(f"notes: {notes}")


def _session(trial: Trial, partition: int) -> Producer:
    """A session of the producer of this partition. It ends the one before it."""
    settings = {
        "bootstrap.servers": trial.bench.target.cluster.bootstrap,
        "transactional.id": trial.key(partition).transactional_id,
        "log_level": 0,
    }
    writer = Producer(settings)
    writer.init_transactions(60)
    return writer


def run_dies(trial: Trial, *, replicas: int = 1) -> None:
    dying = _alone(trial, replicas)
    run = _committed_without(trial, dying, trial.dice.randrange(PARTITIONS))
    run.kill()
    _back(trial)
    _is_mended(trial)


def run_gives_up(trial: Trial) -> None:
    """It aborts the chunk after it, so that the coordinator remembers an abort."""
    dying = _alone(trial)
    trial.job["attempts"] = 2
    run = _committed_without(trial, dying, trial.dice.randrange(PARTITIONS))
    del trial.job["attempts"]
    if trial.finish(run) != "failed":
        raise TrialFailed(f"run {run.number} did not fail without its target")
    _back(trial)
    _is_mended(trial)


def run_dies_while_it_mends(trial: Trial) -> None:
    """It has taken the copies out of the ledger, and shown or dropped nothing yet."""
    dying = _alone(trial)
    run = _committed_without(trial, dying, trial.dice.randrange(PARTITIONS))
    run.kill()
    _back(trial)
    if trial.finish(trial.start("M1")) != "killed":
        raise TrialFailed("the run did not come to mend anything")
    _is_mended(trial)


def fenced_while_it_mends(trial: Trial) -> None:
    """Between its two transactions a session of the same producer begins, as of a run whose lease is gone. The run mends
    the rest at once, and does not wait for a transaction that nobody ends.
    """
    dying, partition, gate = _alone(trial), trial.dice.randrange(PARTITIONS), trial.folder / "gate.mending"
    run = _committed_without(trial, dying, partition)
    run.kill()
    _back(trial)
    gate.touch()
    run = trial.start(f"M1={gate}")
    wait_until(lambda: failpoints.at_gate(gate).exists() or run.ended)
    for at in _hidden(trial):
        if at.topic == trial.target_topic:
            _session(trial, at.partition)
    trial.note("fenced the run that mends")
    gate.unlink()
    _has_mended(trial, run)


def two_mend(trial: Trial) -> None:
    """Two runs that know nothing of each other's lease mend the same at the same time. If each fences the other, the next
    run does it.
    """
    dying = _alone(trial)
    run = _committed_without(trial, dying, trial.dice.randrange(PARTITIONS))
    run.kill()
    _back(trial)
    runs = [trial.start(store=store) for store in (None, trial.folder / "other.db")]
    for one in runs:
        trial.finish(one)
    if not any(str(Event.MENDED) in one.text for one in runs):
        _is_mended(trial)


def aborted_without(trial: Trial) -> None:
    """The run dies before a commit, and the next one aborts the transaction while the broker is away. All copies before
    that are verified. A commit of the same producer behind it would show what was aborted.
    """
    dying, partition, gate = _alone(trial), trial.dice.randrange(PARTITIONS), trial.folder / "gate"
    trial.part(HALF)
    gate.touch()
    run = trial.start(f"P2@{trial.key(partition).source}:1={gate}")
    wait_until(lambda: failpoints.at_gate(gate).exists() or run.ended)
    trial.note(f"run {run.number} halts before a commit of partition {partition}")
    _kill(trial, dying)
    run.kill()
    gate.unlink()
    if trial.finish(trial.start()) != "failed":
        raise TrialFailed("a run did not fail without its target")
    _back(trial)
    _is_mended(trial)


def ledger_is_hidden(trial: Trial, *, next_is_under_way: bool = False) -> None:
    """The partition without a leader is one of the ledger: a position or a receipt is missing, the records are there. The
    end of the next transaction drops it, if that was about to commit, too.
    """
    target = trial.bench.target
    trial.settings["target_topics"] = {**trial.settings.get("target_topics", {}), "replication_factor": 1}
    partitions = profiles.SPREAD if profiles.current().spread else PARTITIONS
    target.direct.create(trial.target_topic, partitions, replicas=len(target.brokers))
    trial.part(20)
    partition, topic = trial.dice.randrange(PARTITIONS), trial.dice.choice([POSITIONS, RECEIPTS])
    broker = target.leader(topic, trial.key(partition).ledger_partition)
    trial.note(f"{broker} has {topic}-{trial.key(partition).ledger_partition}")
    run = _committed_without(trial, [broker], partition, transaction_timeout=240)
    if next_is_under_way:
        at = TopicPartition(topic, trial.key(partition).ledger_partition)
        wait_until(lambda: at in _of_transaction(trial, partition) or run.ended)
    run.kill()
    _back(trial)
    _is_mended(trial)


def _of_transaction(trial: Trial, partition: int) -> Collection[TopicPartition]:
    """The partitions of the open transaction in which a chunk of this partition is; none if there is none."""
    writer, target = trial.key(partition).transactional_id, trial.bench.target
    connection = Connection(LOOPBACK, target.coordinator(writer).port, security_of(target.connection({})), 30.0)
    try:
        with closing(connection) as coordinator:
            ids = (TransactionalId(writer),)
            answer = coordinator.ask(DescribeTransactionsRequest(transactional_ids=ids), DescribeTransactionsResponse)
    except Unreachable:  # kio cannot read the start time of one that has ended
        return []
    (found,) = answer.transaction_states
    return [TopicPartition(str(one.topic), int(number)) for one in found.topics for number in one.partitions]


def next_session_aborts(trial: Trial) -> None:
    """Its marker drops the copies that the ledger counts: a session began that knew nothing of the partial commit."""
    dying = _alone(trial)
    run = _committed_without(trial, dying, trial.dice.randrange(PARTITIONS))
    run.kill()
    _back(trial)
    for at in _hidden(trial):
        writer = _session(trial, at.partition)
        writer.begin_transaction()
        writer.produce(at.topic, value=b"never committed", partition=at.partition)
        writer.flush(60)
        writer.abort_transaction(60)
    wait_until(lambda: not _hidden(trial))
    _is_mended(trial)


def end_lost(trial: Trial) -> None:
    """Some partitions lose their last bytes, in the middle of a batch or of a chunk. All copies were verified."""
    [broker] = _alone(trial)
    trial.part(HALF)
    broker.kill()
    for partition in trial.dice.sample(range(PARTITIONS), 3):
        log = max((broker.data / str(trial.key(partition).target)).glob("*.log"))
        size = log.stat().st_size
        os.truncate(log, trial.dice.randrange(size))
        trial.note(f"partition {partition} has {log.stat().st_size} of {size} bytes left")
    broker.start()
    trial.bench.target.heal()
    _is_mended(trial)


ROWS = (
    Row("target-commit-partial", run_dies),
    Row("target-commit-partial-replicas", partial(run_dies, replicas=2), bench=Bench.with_wide_target),
    Row("target-commit-partial-given-up", run_gives_up),
    Row("target-commit-partial-mending-killed", run_dies_while_it_mends),
    Row("target-commit-partial-mending-fenced", fenced_while_it_mends),
    Row("target-commit-partial-two-mend", two_mend),
    Row("target-commit-partial-dropped", next_session_aborts, sampled=False),
    Row("target-abort-partial", aborted_without),
    Row("target-end-lost", end_lost, sampled=False),
    Row("target-ledger-commit-partial", ledger_is_hidden, sampled=False, bench=Bench.with_fragile_target),
    Row(
        "target-ledger-commit-partial-dropped",
        partial(ledger_is_hidden, next_is_under_way=True),
        sampled=False,
        bench=Bench.with_fragile_target,
    ),
)
