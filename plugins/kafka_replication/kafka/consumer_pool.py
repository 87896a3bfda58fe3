"""Keeps the consumers of one process for reuse: a new one costs connections, threads and tens of milliseconds.

Keeps one task below its share of ``copy.throughput_limit``.

Merges requests: threads that ask for the same kind of thing at the same time share an answer.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from confluent_kafka import Consumer, ThrottleEvent
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka import clients

# Idle consumers of a process; each has a connection and four threads. A worker that works on eight small ranges at a
# time reads the source and the target in each thread, and the ledger for all of them. With fewer it makes new ones all
# the time.
MOST = 24
_Key = tuple[Any, ...]
Throttled = Callable[[ThrottleEvent], None]
_idle: list[Loan] = []  # the one that has been idle for longest comes first
_inherited: list[Any] = []  # a forked process has none of their threads: it must neither use, close nor free them
_lock = threading.Lock()


class ThrottleListener:
    """Told by the client that a broker makes it wait; tells whoever uses the consumer now."""

    told: Throttled | None = None

    def __call__(self, event: ThrottleEvent) -> None:
        if self.told is not None:
            self.told(event)


@dataclass(frozen=True, slots=True, eq=False)
class Loan:
    """A consumer that is lent. Use `give_back` after an assignment that is sound, otherwise close the consumer."""

    key: _Key
    consumer: Consumer
    listener: ThrottleListener
    read: dict[str, str] = field(default_factory=dict)  # topics and their ids

    def give_back(self) -> None:
        """It keeps its connections, but no records: an assignment starts a new fetch."""
        self.consumer.unassign()
        self.listener.told = None
        with _lock:
            _idle.append(self)
            surplus = [_idle.pop(0) for _ in range(len(_idle) - MOST)]
        for loan in surplus:
            loan.consumer.close()


def borrow(
    config: clients.ClientConfig,
    group: str,
    make: Callable[..., Consumer] = clients.consumer,
    *,
    reads: tuple[str, str] | None = None,
    throttled: Throttled | None = None,
    **more: Any,
) -> Loan:
    """A consumer without an assignment, for this thread. If more than `MOST` are idle, the one that was idle for
    longest is closed. A forked process creates its own.

    ``reads`` is the topic to be read and its id, if that is known: a consumer that has read a deleted topic may get no
    records of a new topic with the same name. ``throttled`` is called when a broker makes the consumer wait, unless the
    connection has a callback of its own.

    A consumer that is used again does not always ask where the log has the end of a stored leader epoch (measured:
    OffsetForLeaderEpoch for one range of five). So who passes a stored epoch to `assign` has to compare it with the
    current one, and needs a new consumer if they differ: the log may have been truncated, and have grown again.
    """
    config = clients.without_statistics(config)  # an idle one would keep them
    hears = throttled is not None and "throttle_cb" not in config
    key = (make, group, reads is None, hears, repr(sorted(config.items())), repr(sorted(more.items())))
    topic, id_ = reads or ("", "")
    with _lock:
        fit = (idle for idle in reversed(_idle) if idle.key == key and idle.read.get(topic, id_) == id_)
        if (loan := next(fit, None)) is not None:
            _idle.remove(loan)
    if loan is None:
        listener = ThrottleListener()
        loan = Loan(key, make({**config, "throttle_cb": listener} if hears else config, group, **more), listener)
    loan.listener.told = throttled
    loan.read[topic] = id_
    return loan


@contextmanager
def borrowed(
    config: clients.ClientConfig, group: str, make: Callable[..., Consumer] = clients.consumer, **more: Any
) -> Iterator[Consumer]:
    """The same until the body ends. The consumer is closed if the body raised."""
    loan = borrow(config, group, make, **more)
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
    for loan in ending:
        loan.consumer.close()


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    _inherited.append(list(_idle))
    _idle.clear()


os.register_at_fork(after_in_child=_forked)


LONGEST_SLEEP = 0.5  # seconds; a signal is handled between two sleeps


class Pace:
    """Counts bytes, and computes the waits that keep them to ``limit`` a second; None is no limit."""

    def __init__(
        self,
        limit: int | None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limit, self._now, self._sleep = limit, now, sleep
        self._due = now()  # when everything that was carried was allowed to be

    def spend(self, size: int) -> None:
        """Count ``size`` bytes that were carried."""
        if self._limit is not None:
            self._due = max(self._now(), self._due) + size / self._limit

    @property
    def seconds(self) -> float:
        """The time in seconds to wait before more bytes are carried."""
        return 0.0 if self._limit is None else max(0.0, self._due - self._now())

    def wait(self) -> None:
        """Wait for this time."""
        while left := self.seconds:
            self._sleep(min(left, LONGEST_SLEEP))

    def step(self, size: int) -> int:
        """The bytes to carry at a time: ``size``, or the bytes of half a second if they are fewer."""
        return size if self._limit is None else max(1, min(size, self._limit // 2))


def paced(config: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    """The settings of a consumer that does not fetch far ahead of its limit. The connection's settings win."""
    if limit is None:
        return dict(config)
    ahead = min(4 << 20, max(64 << 10, limit))
    return {"fetch.message.max.bytes": ahead, "queued.max.messages.kbytes": max(1, ahead >> 10), **config}


K = TypeVar("K")
V = TypeVar("V")


class SharedRead(Generic[K, V]):
    """One call at a time, for the keys of all threads that wait for it. Threads that ask while a call is under way
    share the next one: no answer is older than its question.
    """

    def __init__(self) -> None:
        self._next: tuple[set[K], Future[Mapping[K, V]]] = set(), Future()  # what is asked for in the next call
        self._lock, self._under_way = threading.Lock(), threading.Lock()

    def ask(self, key: K, read: Callable[[set[K]], Mapping[K, V]]) -> V | None:
        """The answer of ``read`` for this key; None if it has none. Raises the errors of ``read``.

        The first of the threads that share a call makes it, with its own ``read``.
        """
        with self._lock:
            keys, answer = self._next
            is_first = not keys
            keys.add(key)
        if is_first:
            with self._under_way:
                with self._lock:
                    self._next = set(), Future()
                try:
                    answer.set_result(read(keys))
                except BaseException as error:
                    answer.set_exception(error)
                    raise
        return answer.result().get(key)


class OfEachAdmin(Generic[V]):
    """One value for each admin client, kept as long as the client is: threads with the same client share it."""

    def __init__(self, make: Callable[[], V]) -> None:
        self._make = make
        self._values: WeakKeyDictionary[AdminClient, V] = WeakKeyDictionary()

    def of(self, admin: AdminClient) -> V:
        return self._values.get(admin) or self._values.setdefault(admin, self._make())
