"""Runs work in a thread that may hang. A hanging thread delays neither its caller nor the end of the process."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


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
