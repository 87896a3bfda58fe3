"""Runs work in a thread that may hang. A hanging thread delays neither its caller nor the end of the process."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
AT_ONCE = 8  # threads; each may have a producer, with threads and connections of its own


def begin(work: Callable[[], T], name: str) -> Future[T]:
    """Begin ``work`` in a thread called ``name`` with the context of this one. The future has its result or its
    exception.

    The threads of `concurrent.futures` are no daemons: Python waits for them at its end, however long they hang.
    """
    future, inside = Future[T](), contextvars.copy_context()

    def run() -> None:
        try:
            result = inside.run(work)
        except BaseException as e:  # noqa: BLE001  # the caller gets it with the result
            future.set_exception(e)
        else:
            future.set_result(result)

    threading.Thread(target=run, daemon=True, name=name).start()
    return future


def at_once(items: Iterable[T], work: Callable[[T], R], name: str) -> dict[T, R]:
    """The results of ``work`` with each item, in at most `AT_ONCE` threads. Raises what one of them raises."""
    queue, results = deque(items), dict[T, R]()

    def until_empty() -> None:
        while queue:
            try:
                item = queue.popleft()
            except IndexError:  # another thread was faster
                return
            results[item] = work(item)

    threads = [begin(until_empty, name) for _ in range(min(AT_ONCE, len(queue)))]
    try:
        for thread in threads:
            thread.result()
    finally:
        queue.clear()
    return results
