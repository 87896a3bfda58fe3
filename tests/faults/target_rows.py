"""Faults of the target's brokers and of the way to them."""

from __future__ import annotations

import resource
import signal
import time

from stack.kafka_cluster import Broker
from tests.faults.load import PARTITIONS
from tests.faults.proxy import END_TXN
from tests.faults.row import Row
from tests.faults.trial import Trial, TrialFailed


def _kill_for_a_while(trial: Trial, broker: Broker) -> None:
    trial.note(f"killing {broker}")
    broker.kill()
    time.sleep(trial.dice.random() * 8)
    broker.start()
    trial.note(f"{broker} is back")


def broker_killed(trial: Trial) -> None:
    run = trial.start()
    trial.middle(run)
    _kill_for_a_while(trial, trial.dice.choice(trial.bench.target.brokers))
    trial.finish(run)


def coordinator_killed(trial: Trial) -> None:
    """The coordinator of one of the transactional ids, so that no commit of it can go through for a while."""
    run = trial.start()
    trial.middle(run)
    _kill_for_a_while(
        trial, trial.bench.target.coordinator(trial.key(trial.dice.randrange(PARTITIONS)).transactional_id)
    )
    trial.finish(run)


def broker_frozen(trial: Trial) -> None:
    """SIGSTOP for longer than the clients wait for an answer."""
    trial.clients = {"socket.timeout.ms": 3_000}
    run = trial.start()
    trial.middle(run)
    broker = trial.dice.choice(trial.bench.target.brokers)
    assert broker.process is not None
    trial.note(f"freezing {broker}")
    broker.process.send(signal.SIGSTOP)
    time.sleep(4 + trial.dice.random() * 8)
    broker.process.send(signal.SIGCONT)
    trial.note(f"{broker} woke up")
    trial.finish(run)


def below_min_isr(trial: Trial) -> None:
    """With min.insync.replicas 3 one missing broker is enough: nothing is acknowledged until it is back."""
    run = trial.start()
    trial.middle(run, most=15)
    trial.bench.target.direct.set(trial.target_topic, min_insync_replicas="3")
    _kill_for_a_while(trial, trial.dice.choice(trial.bench.target.brokers))
    trial.finish(run)
    trial.bench.target.direct.set(trial.target_topic, min_insync_replicas="2")


def two_brokers_killed(trial: Trial) -> None:
    """Below min ISR everywhere, and the controllers lose their majority."""
    run = trial.start()
    trial.middle(run)
    gone = trial.dice.sample(trial.bench.target.brokers, 2)
    trial.note(f"killing {gone[0]} and {gone[1]}")
    for broker in gone:
        broker.kill()
    time.sleep(trial.dice.random() * 10)
    trial.bench.target.cluster.start()
    trial.finish(run)


def rolling_restart(trial: Trial) -> None:
    trial.survives_restarts(trial.bench.target)


def end_txn_answer_lost(trial: Trial) -> None:
    """The target commits, and nobody hears of it."""
    run = trial.start()
    trial.middle(run)
    proxies = trial.bench.target.proxies
    before = sum(proxy.swallowed for proxy in proxies)
    for proxy in proxies:
        proxy.swallow(END_TXN, trial.dice.randrange(1, 4))
    trial.finish(run)
    swallowed = sum(proxy.swallowed for proxy in proxies) - before
    trial.note(f"{swallowed} answers were swallowed")
    if not swallowed:
        raise TrialFailed("no EndTxn answer was there to be lost: the run was over too soon")


def disk_full(trial: Trial) -> None:
    """No file of one broker may grow any more, as on a full disk or above a quota; it comes back with room."""
    run = trial.start()
    trial.middle(run)
    broker = trial.dice.choice(trial.bench.target.brokers)
    process = broker.process
    assert process is not None
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, hard))
    trial.note(f"the disk of {broker} is full")
    gone = process.wait(4 + trial.dice.random() * 8)
    trial.note(f"{broker} {'gave up' if gone else 'goes on without its disk'}")
    broker.kill()
    broker.start()
    trial.finish(run)


def connections_cut(trial: Trial) -> None:
    """Every connection to the target, every half second."""
    run = trial.start()
    trial.middle(run, most=10)
    for _ in range(10):
        for proxy in trial.bench.target.proxies:
            proxy.cut()
        time.sleep(0.5)
    trial.finish(run)


ROWS = (
    Row("target-broker-killed", broker_killed, "core"),
    Row("target-coordinator-killed", coordinator_killed, "core"),
    Row("target-endtxn-answer-lost", end_txn_answer_lost, "core"),
    Row("target-broker-frozen", broker_frozen),
    Row("target-below-min-isr", below_min_isr),
    Row("target-two-brokers-killed", two_brokers_killed),
    Row("target-rolling-restart", rolling_restart),
    Row("target-disk-full", disk_full),
    Row("target-connections-cut", connections_cut),
)
