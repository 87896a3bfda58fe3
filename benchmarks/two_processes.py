"""Two processes that have started before a clock does. Imports nothing that one of them does not need."""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.pool import Pool
from multiprocessing.synchronize import Barrier

from kafka_replication.spark.submit import WORKER_ENVIRONMENT

START = 60.0  # seconds that they may take


def _nothing() -> None: ...


@contextmanager
def two_processes(*modules: str, prepare: Callable[[], object] = _nothing) -> Iterator[tuple[Pool, list[int]]]:
    """A pool of two that have imported these modules, and were prepared, and their pids, in the environment of Spark's
    Python workers.
    """
    os.environ.update(WORKER_ENVIRONMENT)
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(3)
    with context.Pool(2, _prepare, (modules, prepare, ready)) as pool:
        ready.wait(START)
        yield pool, [process.pid for process in multiprocessing.active_children() if process.pid is not None]


def _prepare(modules: Sequence[str], prepare: Callable[[], object], ready: Barrier) -> None:
    prepare()
    for module in modules:
        importlib.import_module(module)
    ready.wait(START)
