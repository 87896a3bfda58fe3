"""In the driver: the JVM that started it. When that is gone, the driver has nothing left to do."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time

import psutil

from kafka_replication.runtime.identity import is_running

log = logging.getLogger(__name__)
INTERVAL = 0.5
GRACE = 20.0  # seconds


def watch() -> psutil.Process | None:
    """End this process when its JVM is gone. Returns the JVM, or None if it is gone already.

    The JVM is the driver's parent at this moment, so it is remembered now. If the JVM dies, another process becomes the
    driver's parent, in a container often process 1, and that one must not be ended.
    """
    parent = None
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid) if (pid := os.getppid()) > 1 else None
    threading.Thread(target=_watch, args=(parent,), daemon=True, name="watch-jvm").start()
    return parent


def _watch(parent: psutil.Process | None) -> None:
    while parent is not None and is_running(parent):
        time.sleep(INTERVAL)
    log.error("the JVM of this driver is gone: stopping")
    os._exit(1)


def end(parent: psutil.Process | None) -> None:
    """Ask the JVM to end, which ends its Python workers. If it has not ended after `GRACE`, kill it: its workers see
    that, too. psutil signals no other process that got the same pid.
    """
    with contextlib.suppress(psutil.Error):
        if parent is not None and is_running(parent):
            parent.terminate()
            with contextlib.suppress(psutil.TimeoutExpired):
                parent.wait(GRACE)
                return
            parent.kill()
