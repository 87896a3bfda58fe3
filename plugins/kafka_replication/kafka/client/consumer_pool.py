"""Keeps the consumers of one process for reuse: a new one costs connections, threads and tens of milliseconds."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, ThrottleEvent

from kafka_replication.kafka.client import clients

# Idle consumers of a process; each has a connection and four threads. A worker that works on eight small ranges at a
# time reads the source and the target in each thread, and the ledger for all of them. With fewer it makes new ones all
# the time.
MOST = 24
_Key = tuple[Any, ...]
Throttled = Callable[[ThrottleEvent], None]
_idle: list[Loan] = []  # the one that has been idle for longest comes first
_inherited: list[Any] = []  # a forked process has none of their threads: it must neither use, close nor free them
_lock = threading.Lock()


class Ear:
    """Hears that a broker makes a consumer wait, and tells whoever uses the consumer now."""

    told: Throttled | None = None

    def __call__(self, event: ThrottleEvent) -> None:
        if self.told is not None:
            self.told(event)


@dataclass(frozen=True, slots=True, eq=False)
class Loan:
    """A consumer that is lent. Use `give_back` after an assignment that is sound, otherwise close the consumer."""

    key: _Key
    consumer: Consumer
    ear: Ear

    def give_back(self) -> None:
        """It keeps its connections, but no records: an assignment starts a new fetch."""
        self.consumer.unassign()
        self.ear.told = None
        with _lock:
            _idle.append(self)
            surplus = [_idle.pop(0) for _ in range(len(_idle) - MOST)]
        for one in surplus:
            one.consumer.close()


def borrow(
    config: clients.ClientConfig,
    group: str,
    make: Callable[..., Consumer] = clients.consumer,
    *,
    reads: str = "",
    throttled: Throttled | None = None,
    **more: Any,
) -> Loan:
    """A consumer without an assignment, for this thread. If more than `MOST` are idle, the one that was idle for
    longest is closed. A forked process creates its own.

    ``reads`` is the id of the topic to be read, if it is known: a consumer that has read a deleted topic may get no
    records of a new topic with the same name. ``throttled`` is called when a broker makes the consumer wait, unless the
    connection has a callback of its own.

    A consumer that is used again does not always ask where the log has the end of a stored leader epoch (measured:
    OffsetForLeaderEpoch for one range of five). So who passes a stored epoch to `assign` has to compare it with the
    current one, and needs a new consumer if they differ: the log may have been truncated, and have grown again.
    """
    config = clients.without_statistics(config)  # an idle one would keep them
    hears = throttled is not None and "throttle_cb" not in config
    key = (make, group, reads, hears, repr(sorted(config.items())), repr(sorted(more.items())))
    with _lock:
        index = next((number for number in reversed(range(len(_idle))) if _idle[number].key == key), None)
        loan = None if index is None else _idle.pop(index)
    if loan is None:
        ear = Ear()
        loan = Loan(key, make({**config, "throttle_cb": ear} if hears else config, group, **more), ear)
    loan.ear.told = throttled
    return loan


@contextmanager
def borrowed(
    config: clients.ClientConfig,
    group: str,
    make: Callable[..., Consumer] = clients.consumer,
    *,
    reads: str = "",
    **more: Any,
) -> Iterator[Consumer]:
    """The same until the body ends. The consumer is closed if the body raised."""
    loan = borrow(config, group, make, reads=reads, **more)
    try:
        yield loan.consumer
        loan.give_back()
    except BaseException:
        loan.consumer.close()
        raise


@atexit.register  # a client that lives on would call into an interpreter that is shutting down
def close_idle() -> None:
    with _lock:
        ending = list(_idle)
        _idle.clear()
    for one in ending:
        one.consumer.close()


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    _inherited.append(list(_idle))
    _idle.clear()


os.register_at_fork(after_in_child=_forked)
