"""The connection between a launcher and its driver, on one machine: jobs go one way, results come back.

It is a Unix socket in a folder that only the owner may open, so that client settings are in no file, on no command line
and on no network. Each side notices at once when the other one is gone.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from kafka_replication.spark.jobs import ANSWER, JOB, Answer, Job


class Gone(Exception):
    """The other side has ended."""


_CLOSE = b""
TOGETHER = 1.0  # seconds
SHARE = 9.0  # so that taking answers needs about a tenth of the time if they come one by one
STEP = 0.1  # seconds between two looks at whether spark-submit still runs


@contextmanager
def _gone() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as e:
        raise Gone(str(e)) from e


def listen(path: Path) -> socket.socket:
    """A listening socket at ``path``, to which only this user may connect."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    path.chmod(0o600)
    listening.listen(1)
    listening.settimeout(STEP)
    return listening


class LauncherSide:
    """The launcher's end."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    def accept(cls, listening: socket.socket, is_over: Callable[[], bool]) -> LauncherSide | None:
        """Wait for the driver. None if ``is_over`` says so first."""
        while not is_over():
            with suppress(TimeoutError):
                accepted, _ = listening.accept()
                accepted.setblocking(True)
                return cls(Connection(accepted.detach()))
        return None

    def send(self, job: Job) -> None:
        """Raises Gone."""
        with _gone():
            self._connection.send_bytes(JOB.dump_json(job))

    def answers(self) -> Iterator[list[Answer]]:
        """The driver's answers to one job: each time at least one, and all that are there.

        The more time the caller takes for them, the longer it waits for others that it can take together, at most
        `TOGETHER` seconds. Raises Gone.
        """
        end, took = False, 0.0
        while not end:
            some = [self._answer()]
            until = time.monotonic() + min(TOGETHER, SHARE * took)
            with suppress(Gone):  # the next call raises it; what came before it is not lost
                while some[-1].end is None and self._connection.poll(max(0.0, until - time.monotonic())):
                    some.append(self._answer())
            end = some[-1].end is not None
            given = time.monotonic()
            yield some
            took = time.monotonic() - given

    def _answer(self) -> Answer:
        with _gone():
            return ANSWER.validate_json(self._connection.recv_bytes())

    def close(self) -> None:
        """Tell the driver to end; it may be gone already."""
        with suppress(OSError):
            self._connection.send_bytes(_CLOSE)
        self._connection.close()


class DriverSide:
    """The driver's end. Several threads may `send`."""

    def __init__(self, path: str) -> None:
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(path)
        self._connection, self._lock = Connection(connected.detach()), threading.Lock()

    def jobs(self) -> Iterator[Job]:
        """Each job as it comes, until the launcher closes. Raises Gone."""
        while (received := self._receive()) != _CLOSE:
            yield JOB.validate_json(received)

    def _receive(self) -> bytes:
        with _gone():
            return self._connection.recv_bytes()

    def send(self, answer: Answer) -> None:
        """Raises Gone."""
        with self._lock, _gone():
            self._connection.send_bytes(ANSWER.dump_json(answer))

    def close(self) -> None:
        self._connection.close()
