"""PostgreSQL servers of the tests' own, from a Python package. They listen on a socket file only."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy.engine import make_url

from tests.support.waiting import wait_until


def server_in(folder: Path, stack_folder: Path) -> Any:
    """The package's server in this folder. Skips the test where there is none, or where it cannot start."""
    if importlib.util.find_spec("pgserver") is None:
        pytest.skip("there is no package with a PostgreSQL server for this Python")
    locks = stack_folder / "runtime"
    locks.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(locks))
        from pgserver.postgres_server import get_server

    logging.getLogger("pgserver").disabled = True  # it speaks at the very end, when nobody takes it any more
    try:
        return get_server(folder)
    except (subprocess.SubprocessError, OSError) as e:  # as root it needs a user of its own, and a tool that makes one
        pytest.skip(f"no PostgreSQL server can be started here: {e}")


def url_of(server: Any) -> str:
    return make_url(server.get_uri()).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


class Server:
    """One that a test kills and starts again."""

    def __init__(self, server: Any, folder: Path) -> None:
        self._server, self._folder = server, folder
        self.url = url_of(server)

    def kill(self) -> None:
        first = psutil.Process(self._server.get_pid())
        processes = [first, *first.children(recursive=True)]
        first.send_signal(signal.SIGKILL)
        wait_until(lambda: all(map(_has_ended, processes)))  # the others end when the first one is gone

    def start(self) -> None:
        for left_over in ("postmaster.pid", ".s.PGSQL.5432.lock"):  # nobody may have reaped the killed one
            (self._folder / left_over).unlink(missing_ok=True)
        for _ in range(10):  # the package waits for 10 s, which a busy machine may need for a start
            try:
                self._server.ensure_postgres_running()
                return
            except subprocess.TimeoutExpired:
                continue
        raise AssertionError("PostgreSQL did not start within 100 s")


def _has_ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(scope="module")
def server(stack_folder: Path) -> Iterator[Server]:
    """One for the tests of a file."""
    folder = stack_folder / f"postgresql-{os.urandom(3).hex()}"
    started = server_in(folder, stack_folder)
    yield Server(started, folder)
    started.cleanup()
