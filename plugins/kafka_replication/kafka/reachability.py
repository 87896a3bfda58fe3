"""Checks that this process can reach a cluster. A worker may be in another network than the process that submitted."""

from __future__ import annotations

import logging
import os
import socket
from concurrent.futures import Future, wait

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # re-exported without saying so

from kafka_replication.kafka import clients
from kafka_replication.kafka.callbacks import answer_of
from kafka_replication.model.errors import Unreachable
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runtime.deadline import Deadline, retry

log = logging.getLogger(__name__)
# Three attempts outlast a broker that restarts. A blocked network stays blocked: hours of attempts, as a copy makes for
# a cluster that answered before, would only hide that.
ATTEMPTS = 3
_NO_ANSWER = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._NO_OFFSET,
    }
)
_answered: set[str] = set()  # bootstrap servers that answered this process
_first: dict[str, Future[None]] = {}  # by bootstrap servers: done when the first thread that asks them has ended
TO_WAIT = 2.0  # seconds for the answer to another thread; a cluster that answers does it sooner


def check(
    side: str, config: clients.ClientConfig, partition: TopicPartition, seconds: float, deadline: Deadline
) -> None:
    """Send a request to the cluster and to the leader of ``partition``, once in the life of this process.

    Any answer passes, even an error, which later steps handle. Raises Unreachable after `ATTEMPTS` attempts of
    ``seconds`` each, and OutOfTime.
    """
    address = str(config["bootstrap.servers"])
    if address in _answered:
        return
    # One thread asks. The others, which begin at the same time, give it a moment: each question costs a client.
    mine = Future[None]()
    first = _first.setdefault(address, mine)
    if first is not mine:
        wait([first], TO_WAIT)
    doing = f"{partition}: reaching the {side}"
    try:
        if address not in _answered:
            retry(doing, lambda: _ask(config, partition, deadline.within(seconds)), deadline, ATTEMPTS)
            _answered.add(address)
    except Unreachable as e:
        raise type(e)(
            f"{partition}: the {side} cluster has never answered this worker on {socket.gethostname()}: {e.what}",
            f"{e.remedy}{'; or ' * bool(e.remedy)}let the workers reach the advertised address of every broker"
            " (firewall, routes, names), see docs/deployment.md; if the brokers were only down, run again",
        ) from e
    finally:
        if first is mine:
            del _first[address]
            mine.set_result(None)


os.register_at_fork(after_in_child=_first.clear)  # the threads of another process


def _ask(config: clients.ClientConfig, partition: TopicPartition, seconds: float) -> None:
    # The one that all of this process's work needs.
    client = clients.shared_admin(config, seconds, partition.topic)
    request = {ClientPartition(partition.topic, partition.partition): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
    try:
        for future in client.list_offsets(request, request_timeout=seconds).values():
            answer_of(future, seconds * 2)
    except KafkaException as e:
        error = e.args[0]
        if error.code() in _NO_ANSWER:
            raise Unreachable(
                f"{config['bootstrap.servers']} answers, but the broker that leads {partition} does not: {error.str()}",
                "",
            ) from e
        log.info("%s answered with %s", config["bootstrap.servers"], error.name())
