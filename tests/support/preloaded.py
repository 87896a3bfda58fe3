"""A process that has imported what our programs import, and forks a new one for each request: a program starts in a tenth of the time.

``preloaded.py SOCKET``, a Unix socket, on which each connection is one program: a line of JSON (`Request`) with the program's three
standard streams comes in, its pid goes out, and its exit status when it has ended. The process ends when its standard input does.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import psutil

LONGEST = 1 << 20  # bytes of a request


class Request(TypedDict):
    """``python -m module arguments``, in this folder and with this environment and nothing else of it."""

    module: str
    arguments: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    interruptible: bool  # whether SIGINT ends it: a child inherits it if it is ignored


def serve(path: str) -> Request:
    """Returns in each new program."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}.new")
        listener.listen()
        Path(f"{path}.new").rename(path)  # from now on it takes connections
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait for programs
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if listener not in ready:
                raise SystemExit
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                return _program(connection)
            connection.close()


def _program(connection: socket.socket) -> Request:
    """Returns in the program; the process that forked it tells of its end, and ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    line, streams, _, _ = socket.recv_fds(connection, LONGEST, 3)
    while not line.endswith(b"\n"):
        line += connection.recv(LONGEST)
    program = os.fork()
    if program == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        request: Request = json.loads(line)
        return request
    for stream in (*streams, 0, 1, 2):
        os.close(stream)
    connection.sendall(b"%d\n" % program)
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    connection.sendall(b"%d\n" % status)
    os._exit(0)


def become(request: Request) -> None:
    """What the interpreter would find if it were started for this request alone."""
    signal.signal(signal.SIGINT, signal.default_int_handler if request["interruptible"] else signal.SIG_IGN)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    given = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:] = [request["folder"], *given, *(place for place in sys.path[1:] if place not in given)]
    sys.argv = [request["module"], *request["arguments"]]


def main() -> None:
    import tests.support.jobs
    import tests.support.scenario  # noqa: F401

    assert psutil.Process().num_threads() == 1, "a forked process has none of these threads"
    gc.freeze()
    request = serve(sys.argv[1])
    become(request)
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
