"""Processes of Spark in local mode that have loaded their modules before Spark starts them.

The launcher starts one together with Spark. While the JVM starts, it loads what the driver needs, and forks another
one, which loads what a worker needs. When Spark starts its own two, Python's driver and PySpark's daemon, each of them
gives its place to the one that waits for it (`start.give_place`). If none waits, it loads the modules itself.

Spark's setting ``spark.python.daemon.module`` names this module. Importing creates no client and starts no thread, so
forking is safe.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from kafka_replication.runtime.garbage import loading
from kafka_replication.spark.start import (
    DAEMON_PLACE,
    DRIVER_PLACE,
    GO,
    READY,
    give_place,
    interpreter,
    prefer_linked,
)

END_SECONDS = 5.0
PRELOADED = (
    "pyspark.worker",
    "kafka_replication.spark.worker",
    "kafka_replication.kafka.record_engine",
    "kafka_replication.kafka.ledger",
    "kafka_replication.kafka.reachability",
    "kafka_replication.kafka.read_back",
    "kafka_replication.kafka.sink",
)


def preload() -> None:
    """Import the modules that exist. A worker reports missing ones itself (`driver.MISSING`)."""
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001  # any error of foreign code; the worker meets it again
            return
    # What reads and writes jobs and the ledger is built once for all workers and their threads.
    from kafka_replication.ledger import codec
    from kafka_replication.ledger.entries import Position, Receipt, Verified
    from kafka_replication.spark.jobs import BUNDLE, JOB, RESULTS

    for adapter in (JOB, BUNDLE, RESULTS):
        adapter.rebuild()
    codec.build(Position, Receipt, Verified)


def daemon() -> None:
    """The entry point of PySpark's daemon: ``-m MODULE WORKER``. It forks workers."""
    here = prefer_linked()
    if here is not None and (code := give_place(here / DAEMON_PLACE)) is not None:
        sys.exit(code)
    with loading():  # so no worker's garbage collection touches, and copies, the pages it shares with the others
        preload()
    from pyspark.daemon import manager

    manager()


# The folder in which a run was called is no place for modules.
PROGRAM = f"import sys; sys.path[:1] == [''] and sys.path.pop(0); from {__name__} import wait; wait()"


def wait() -> NoReturn:
    """The entry point of the process that waits for the driver's place: ``-c PROGRAM LAUNCHER DRIVER DAEMON``, the
    numbers of a pipe that ends with the launcher, and of the sockets of both places.
    """
    if prefer_linked() is None:
        os._exit(0)
    launcher, *numbers = map(int, sys.argv[1:])
    drivers, daemons = (socket.socket(fileno=number) for number in numbers)
    with loading():
        from kafka_replication.spark import driver
    if not (forked := os.fork()):
        drivers.close()
        with loading():
            preload()
        whose, _ = _take_place(daemons, launcher)
        os.register_at_fork(after_in_child=whose.close)
        from pyspark.daemon import manager

        os._exit(_do(whose, manager, threading.Event()))
    daemons.close()
    whose, parent = _take_place(drivers, launcher)
    done = threading.Event()
    threading.Thread(target=_end_with, args=(whose, done), daemon=True, name="watch-place").start()
    code = _do(whose, lambda: driver.main(parent), done)
    os.closerange(0, 3)  # nobody waits for more that is said here
    os.waitpid(forked, 0)  # it ends with Spark, or with the launcher
    os._exit(code)


def _take_place(at: socket.socket, launcher: int) -> tuple[socket.socket, int]:
    """Wait for the process that Spark starts, and become what it is. Returns the connection to it, and the process id
    of its parent. The process ends if the launcher does before, or if it cannot become the same.
    """
    events = select.poll()
    events.register(at, select.POLLIN)
    events.register(launcher, select.POLLIN)
    if any(number == launcher for number, _ in events.poll()):
        os._exit(0)
    whose, _ = at.accept()
    at.close()
    _, streams, _, _ = socket.recv_fds(whose, 1, 3)
    with whose.makefile("rb") as said:
        its, argv, environ, path, parent, limits, mask, folder = json.loads(said.readline())
    if its != interpreter(sys.path[1:]):
        os._exit(0)
    try:
        for name, (soft, hard) in limits.items():
            resource.setrlimit(getattr(resource, name), (soft, hard))
        os.chdir(folder)
    except (OSError, ValueError):
        os._exit(0)
    os.umask(mask)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[:], sys.path[:] = argv, path
    whose.sendall(READY)
    if whose.recv(1) != GO:
        os._exit(0)
    return whose, parent


def _do(whose: socket.socket, work: Callable[[], None], done: threading.Event) -> int:
    """Do the work, and tell its exit code, when it is ``done``, to the process that gave its place. Returns it."""
    code: object = 1
    try:
        work()
        code = 0
    except SystemExit as e:
        code = e.code or 0
    except Exception:  # noqa: BLE001  # as Python would end
        traceback.print_exc()
    number = code if isinstance(code, int) else 1
    sys.stdout.flush()
    done.set()
    with suppress(OSError):
        whose.sendall(bytes([number & 0xFF]))
    return number


def _end_with(whose: socket.socket, done: threading.Event) -> None:
    """End this process when the one is gone that gave it its place, unless all is ``done``."""
    with suppress(OSError):
        whose.recv(1)
    if not done.is_set():
        os._exit(1)


@contextmanager
def waiting(here: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Start both processes for the launcher's folder ``here``, with the environment of spark-submit. In the end those
    end that nobody gave a place, and the driver is waited for.
    """
    launcher, kept = os.pipe()
    process = None
    # Nothing depends on them: Spark says what is wrong with this Python.
    with ExitStack() as stack, suppress(OSError):
        stack.callback(os.close, launcher)
        places = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        for place, name in zip(places, (DRIVER_PLACE, DAEMON_PLACE), strict=True):
            place.bind(str(here / name))
            place.listen()
        numbers = [launcher, *(place.fileno() for place in places)]
        process = subprocess.Popen(
            [variables["PYSPARK_DRIVER_PYTHON"], "-c", PROGRAM, *map(str, numbers)],
            env={**variables, "PYTHONUNBUFFERED": "YES"},  # as Spark sets it for its Python processes
            pass_fds=numbers,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    try:
        yield
    finally:
        os.close(kept)
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
            process.kill()
            process.wait()


if __name__ == "__main__":
    daemon()
