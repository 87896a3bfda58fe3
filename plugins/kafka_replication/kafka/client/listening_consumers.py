"""Consumers that copy: a quota's effect on each is told to who has borrowed it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import Consumer, ThrottleEvent

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.client.consumer_pool import borrowed
from kafka_replication.kafka.client.throttling import Throttling


class _Told:
    """The ``throttle_cb`` of a consumer that is used by one after the other."""

    def __init__(self) -> None:
        self.to: Callable[[ThrottleEvent], None] | None = None

    def __call__(self, event: ThrottleEvent) -> None:
        if self.to is not None:
            self.to(event)


def _make(config: clients.ClientConfig, group: str, **more: Any) -> Consumer:
    told = _Told()
    consumer = clients.consumer({"throttle_cb": told, **config}, group, **more)
    consumer.told = told  # type: ignore[attr-defined]
    return consumer


@contextmanager
def lent(config: clients.ClientConfig, group: str, throttling: Throttling, topic_id: str | None) -> Iterator[Consumer]:
    """A consumer for one session. With ``topic_id`` it is one that is kept for the next one that reads this topic, as
    `borrowed` says; but not one with statistics, which somebody has to poll.
    """
    if topic_id is None or clients.without_statistics(config) != config:
        with closing(clients.consumer(throttling.listening(config), group)) as own:
            yield own
        return
    with borrowed(config, group, _make, reads=topic_id) as consumer:
        told: _Told = consumer.told  # type: ignore[attr-defined]
        told.to = throttling
        try:
            yield consumer
        finally:
            told.to = None
