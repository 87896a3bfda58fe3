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
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from kafka_replication.runtime.garbage import loading
from kafka_replication.spark.start import (
    DAEMON_PLACE,
    DRIVER_PLACE,
    ENDED,
    TAKEN,
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
    _manage()


def _manage() -> NoReturn:
    """Fork workers until Spark closes the standard input. Raises SystemExit then."""
    from pyspark.daemon import manager

    manager()
    sys.exit()


def wait() -> NoReturn:
    """The entry point of the process that waits for the driver's place: ``-c PROGRAM LAUNCHER DRIVER DAEMON``, the
    numbers of a pipe that ends with the launcher, and of the sockets of both places.
    """
    prefer_linked()
    launcher, *numbers = map(int, sys.argv[1:])
    drivers, daemons = (socket.socket(fileno=number) for number in numbers)
    with loading():
        from kafka_replication.spark import driver
    if os.fork() == 0:
        drivers.close()
        with loading():
            preload()
        whose, _ = _take_place(daemons, launcher)
        _manage()
    daemons.close()
    whose, parent = _take_place(drivers, launcher)
    threading.Thread(target=_end_with, args=(whose,), daemon=True, name="watch-place").start()
    driver.main(parent)
    sys.stdout.flush()
    whose.sendall(ENDED)
    os._exit(0)


def _take_place(at: socket.socket, launcher: int) -> tuple[socket.socket, int]:
    """Wait for the process that Spark starts, and become what it is. Returns the connection to it, and the process id
    of its parent. The process ends if the launcher does before, or if that one has another Python.
    """
    if launcher in select.select([at.fileno(), launcher], [], [])[0]:
        os._exit(0)
    whose, _ = at.accept()
    at.close()
    _, streams, _, _ = socket.recv_fds(whose, 1, 3)
    with whose.makefile("rb") as said:
        its_interpreter, argv, environ, path, parent = json.loads(said.readline())
    if its_interpreter != interpreter():
        os._exit(0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[:], sys.path[:] = argv, path
    whose.sendall(TAKEN)
    return whose, parent


def _end_with(whose: socket.socket) -> None:
    """End this process when the one is gone that gave it its place."""
    with suppress(OSError):
        whose.recv(1)
    os._exit(1)


@contextmanager
def waiting(here: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Start both processes for the launcher's folder ``here``, with the environment of spark-submit. In the end those
    end that nobody gave a place, and the driver is waited for.
    """
    with ExitStack() as stack:
        places = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        for place, name in zip(places, (DRIVER_PLACE, DAEMON_PLACE), strict=True):
            place.bind(str(here / name))
            place.listen()
        launcher, kept = os.pipe()
        numbers = [launcher, *(place.fileno() for place in places)]
        try:
            process = subprocess.Popen(
                [variables["PYSPARK_DRIVER_PYTHON"], "-c", f"from {__name__} import wait; wait()", *map(str, numbers)],
                env={**variables, "PYTHONUNBUFFERED": "YES"},  # as Spark sets it for its Python processes
                pass_fds=numbers,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:  # Spark says what is wrong with this Python
            process = None
        finally:
            os.close(launcher)
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
