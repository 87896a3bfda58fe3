"""The connection between a launcher and its driver, on one machine: jobs go one way, results come back.

It is a Unix socket in a folder that only the owner may open, so that client settings are in no file, on no command line
and on no network. The driver first sends the token that lies beside the socket. Other processes that connect get no
answer. Each side notices at once when the other one is gone.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from kafka_replication.spark.jobs import ANSWER, JOB, Answer, Job
from kafka_replication.spark.workspace import write_private

log = logging.getLogger(__name__)


class Gone(Exception):
    """The other side has ended."""


_CLOSE = b""
TOGETHER = 1.0  # seconds
SHARE = 9.0  # so that taking answers needs about a tenth of the time if they come one by one
TOKEN_BYTES = 32
MOST_STRANGERS = 16  # connections at a time that have not shown the token; then the oldest one is closed
STEP = 0.1  # seconds between two looks at whether spark-submit still runs


@contextmanager
def _gone() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as e:
        raise Gone(str(e)) from e


class Listener:
    """A listening socket at ``path``, to which only this user may connect, and the token of its driver."""

    def __init__(self, path: Path) -> None:
        self.token = secrets.token_bytes(TOKEN_BYTES)
        write_private(_token(path), self.token)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        path.chmod(0o600)
        self.socket.listen(MOST_STRANGERS)
        self._shown: dict[socket.socket, bytes] = {}  # what those have sent that have not sent the whole token yet

    def close(self) -> None:
        self.socket.close()

    def accept(self, is_over: Callable[[], bool]) -> LauncherSide | None:
        """Wait for the driver. Returns None if ``is_over`` becomes true first."""
        try:
            while not is_over():
                for ready in wait([self.socket, *self._shown], STEP):
                    if ready is self.socket:
                        accepted, _ = self.socket.accept()
                        if len(self._shown) >= MOST_STRANGERS:
                            self._shut_out(next(iter(self._shown)))
                        self._shown[accepted] = b""
                    elif ready in self._shown and self._has_shown_all(ready):
                        del self._shown[ready]
                        return LauncherSide(Connection(ready.detach()))
            return None
        finally:
            for arrival in list(self._shown):
                self._shut_out(arrival)

    def _has_shown_all(self, arrival: socket.socket) -> bool:
        part = b""
        with suppress(OSError):
            part = arrival.recv(TOKEN_BYTES - len(self._shown[arrival]))
        self._shown[arrival] += part
        is_whole = len(self._shown[arrival]) == TOKEN_BYTES
        if is_whole and hmac.compare_digest(self._shown[arrival], self.token):
            return True
        if is_whole or not part:
            self._shut_out(arrival)
        return False

    def _shut_out(self, arrival: socket.socket) -> None:
        del self._shown[arrival]
        arrival.close()
        log.warning("a process that is not the Spark driver of this run connected to its socket; it was told nothing")


def _token(path: Path) -> Path:
    return path.with_name(f"{path.name}.token")


class LauncherSide:
    """The launcher's end."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, job: Job) -> None:
        """Send the job. Raises Gone."""
        with _gone():
            self._connection.send_bytes(JOB.dump_json(job))

    def answers(self) -> Iterator[list[Answer]]:
        """The driver's answers to one job: each time at least one, and all that are there.

        The more time the caller takes for them, the longer it waits for others that it can take together, at most
        `TOGETHER` seconds. Raises Gone.
        """
        end, seconds_taken = False, 0.0
        while not end:
            some = [self._answer()]
            until = time.monotonic() + min(TOGETHER, SHARE * seconds_taken)
            with suppress(Gone):  # the next call raises it; what came before it is not lost
                while some[-1].end is None and self._connection.poll(max(0.0, until - time.monotonic())):
                    some.append(self._answer())
            end = some[-1].end is not None
            given = time.monotonic()
            yield some
            seconds_taken = time.monotonic() - given

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
        connected.sendall(_token(Path(path)).read_bytes())
        self._connection, self._lock = Connection(connected.detach()), threading.Lock()

    def jobs(self) -> Iterator[Job]:
        """Each job as it comes, until the launcher closes. Raises Gone."""
        while True:
            with _gone():
                received = self._connection.recv_bytes()
            if received == _CLOSE:
                return
            yield JOB.validate_json(received)

    def send(self, answer: Answer) -> None:
        """Send the answer. Raises Gone."""
        with self._lock, _gone():
            self._connection.send_bytes(ANSWER.dump_json(answer))

    def close(self) -> None:
        self._connection.close()
