"""Consumers that one process uses again: a new one costs connections, threads and tens of milliseconds."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer

from kafka_replication.kafka import clients

_idle: dict[tuple[Any, ...], list[Consumer]] = {}
_lock = threading.Lock()


@contextmanager
def lent(
    config: clients.ClientConfig,
    group: str,
    make: Callable[..., Consumer] = clients.consumer,
    *,
    reads: str = "",
    **more: Any,
) -> Iterator[Consumer]:
    """A consumer without an assignment, for this thread alone until the body ends.

    It keeps its connections, but no records: an assignment starts a new fetch. A consumer whose body raised is closed.
    Consumers do not survive a fork: a forked process makes its own. ``reads`` is the id of the topic to be read, if it
    is known: a consumer that has read a deleted topic of the same name may get nothing of the new one. The copier does
    not use it: each session that reads the source has a consumer of its own.
    """
    key = (os.getpid(), make, group, reads, repr(sorted(config.items())), repr(sorted(more.items())))
    with _lock:
        known = _idle.get(key)
        consumer = known.pop() if known else None
    if consumer is None:
        consumer = make(config, group, **more)
    try:
        yield consumer
        consumer.unassign()
    except BaseException:
        consumer.close()
        raise
    with _lock:
        _idle.setdefault(key, []).append(consumer)
