"""Ending in order: a signal becomes an exception, so that open transactions are aborted on the way out; a group of
processes is ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGHUP)  # SIGHUP is what Spark's Python daemon sends its workers when Spark ends


def on_signals(*, even_ignored: bool = False) -> None:
    """Let the first of `SIGNALS` raise SystemExit in the main thread, which calls this; further ones change nothing.

    By default they end the process at once, and readers of the target wait for its transaction's time-out. A signal
    that is ignored stays so, for that is what nohup asks for; a worker's come from Spark, not from a terminal
    (``even_ignored``).
    """
    for each in SIGNALS:
        if even_ignored or signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, _leave)


def _leave(number: int, _: FrameType | None) -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def end_group(process: subprocess.Popen[Any], seconds: float) -> None:
    """End a process that leads its own group, and that group: asked first, killed after ``seconds``."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        os.killpg(process.pid, signal.SIGKILL)
