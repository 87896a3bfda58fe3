"""Merges requests: threads that ask for the same kind of thing at the same time share an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from confluent_kafka.admin import AdminClient

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True, kw_only=True)
class _Request(Generic[K, V]):
    keys: set[K] = field(default_factory=set)
    has_leader: bool = False  # a thread that will send it
    sent: threading.Event = field(default_factory=threading.Event)
    answer: Mapping[K, V] = field(default_factory=dict)
    error: BaseException | None = None


class SharedRead(Generic[K, V]):
    """One call at a time, for the keys of all threads that wait for it. Threads that ask while a call is under way
    share the next one: no answer is older than its question.
    """

    def __init__(self) -> None:
        self._next: _Request[K, V] = _Request()
        self._lock, self._under_way = threading.Lock(), threading.Lock()

    def ask(self, key: K, read: Callable[[set[K]], Mapping[K, V]]) -> V | None:
        """The answer of ``read`` for this key; None if it has none. Raises the errors of ``read``.

        The first of the threads that share a call makes it, with its own ``read``.
        """
        with self._lock:
            request = self._next
            request.keys.add(key)
            leads, request.has_leader = not request.has_leader, True
        if leads:
            with self._under_way:
                with self._lock:
                    self._next = _Request()
                try:
                    request.answer = read(request.keys)
                except BaseException as error:
                    request.error = error
                    raise
                finally:
                    request.sent.set()
        request.sent.wait()
        if request.error is not None:
            raise request.error
        return request.answer.get(key)


class OfEachAdmin(Generic[V]):
    """One value for each admin client, kept as long as the client is: threads with the same client share it."""

    def __init__(self, make: Callable[[], V]) -> None:
        self._make = make
        self._values: WeakKeyDictionary[AdminClient, V] = WeakKeyDictionary()

    def of(self, admin: AdminClient) -> V:
        return self._values.get(admin) or self._values.setdefault(admin, self._make())
