"""Our programs in processes of their own, which `preloaded` forks: a start costs 0.1 s of CPU time instead of 1.3 s."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.support import session_folder
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]


class Program:
    """``python -m module arguments``, as `subprocess.Popen` with a pipe for stdout would start it. ``errors``: a file for stderr, if it
    is not this process's.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: Path = ROOT,
        errors: IO[str] | None = None,
    ) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(_server()))
        request = {
            "module": module,
            "arguments": arguments,
            "folder": str(folder),
            "environment": {**os.environ, "PYTHONPATH": f"{ROOT}/plugins:{ROOT}", **environment},
            "interruptible": signal.getsignal(signal.SIGINT) is not signal.SIG_IGN,
        }
        out, into = os.pipe()
        with Path(os.devnull).open() as nothing:
            streams = [nothing.fileno(), into, errors.fileno() if errors else 2]
            socket.send_fds(self._connection, [json.dumps(request).encode() + b"\n"], streams)
        os.close(into)
        self.stdout: IO[str] = os.fdopen(out)
        self._answers = self._connection.makefile()
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def poll(self) -> int | None:
        if self.returncode is None:
            self._connection.setblocking(False)
            try:
                arrived = self._connection.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return None
            finally:
                self._connection.setblocking(True)
            assert arrived, "the process that waits for the program was killed"
            return self.wait()
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self.returncode

    def rest(self) -> str:
        """What is left of stdout, once the program has ended."""
        with self.stdout:
            out = self.stdout.read()
        self.wait()
        return out


_starting = threading.Lock()  # threads that ask at the same time get one server


def _server() -> Path:
    with _starting:
        return _started_server()


@functools.cache
def _started_server() -> Path:
    """The socket of this process's server, which ends with this process."""
    path = session_folder.current() / f"programs-{os.getpid()}"
    line = [sys.executable, "-m", "tests.support.preloaded", str(path)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/plugins:{ROOT}"}
    server = subprocess.Popen(line, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    atexit.register(server.communicate)  # the end of its standard input ends it
    wait_until(lambda: path.exists() or server.poll() is not None)
    return path
