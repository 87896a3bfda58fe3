"""Keeps the consumers of one process for reuse: a new one costs connections, threads and tens of milliseconds."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer

from kafka_replication.kafka.client import clients

# Idle consumers of a process; each has a connection and four threads. A worker that works on eight small ranges at a
# time reads three topics in each thread: positions, receipts and the target. With fewer it makes new ones all the time.
MOST = 24
_Key = tuple[Any, ...]
_idle: list[tuple[_Key, Consumer]] = []  # the one that has been idle for longest comes first
_inherited: list[Any] = []  # a forked process has none of their threads: it must neither use, close nor free them
_lock = threading.Lock()


@contextmanager
def borrowed(
    config: clients.ClientConfig,
    group: str,
    make: Callable[..., Consumer] = clients.consumer,
    *,
    reads: str = "",
    **more: Any,
) -> Iterator[Consumer]:
    """A consumer without an assignment, for this thread until the body ends.

    It keeps its connections, but no records: an assignment starts a new fetch. A consumer is closed if its body raised.
    If more than `MOST` are idle, the one that was idle for longest is closed. A forked process creates its own.
    ``reads`` is the id of the topic to be read, if it is known: a consumer that has read a deleted topic may get no
    records of a new topic with the same name. The copier does not use the pool: each session that reads the source has
    its own consumer. One that is used again does not ask whether the log still has the stored leader epoch (measured:
    OffsetForLeaderEpoch for one range of five), so it would not notice a log that was truncated and grew again.
    """
    config = clients.without_statistics(config)  # an idle one would keep them
    key = (make, group, reads, repr(sorted(config.items())), repr(sorted(more.items())))
    consumer = _taken(key) or make(config, group, **more)
    try:
        yield consumer
        consumer.unassign()
    except BaseException:
        consumer.close()
        raise
    _keep(key, consumer)


def _taken(key: _Key) -> Consumer | None:
    with _lock:
        index = next((number for number in reversed(range(len(_idle))) if _idle[number][0] == key), None)
        return None if index is None else _idle.pop(index)[1]


def _keep(key: _Key, consumer: Consumer) -> None:
    with _lock:
        _idle.append((key, consumer))
        surplus = [_idle.pop(0)[1] for _ in range(len(_idle) - MOST)]
    for one in surplus:
        one.close()


@atexit.register  # a client that lives on would call into an interpreter that is shutting down
def close_idle() -> None:
    with _lock:
        ending = [consumer for _, consumer in _idle]
        _idle.clear()
    for one in ending:
        one.close()


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    _inherited.append(list(_idle))
    _idle.clear()


os.register_at_fork(after_in_child=_forked)
