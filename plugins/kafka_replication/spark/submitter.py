"""End Spark when the process that submitted the job is gone: killing that process alone leaves Spark running."""

from __future__ import annotations

import contextlib
import logging
import os
import threading

import psutil
from tenacity import Retrying, retry_if_result, wait_fixed

from kafka_replication.runtime.identity import IDENTITY, ProcessIdentity, is_running

log = logging.getLogger(__name__)
VARIABLE = "KAFKA_REPLICATION_SUBMITTER"
INTERVAL = 0.5


def environment() -> dict[str, str]:
    """The variable that tells the driver which process submits it."""
    return {VARIABLE: IDENTITY.dump_json(ProcessIdentity.own()).decode()}


def watch() -> None:
    """In the driver: end the driver and its JVM when the submitting process is gone. Do nothing if no process is named.

    The JVM is the driver's parent at this moment, so it is remembered now. If the JVM dies first, another process
    becomes the driver's parent, in a container often process 1, and that one must not be ended.
    """
    submitter = os.environ.get(VARIABLE)
    if not submitter:
        return
    arguments = (IDENTITY.validate_json(submitter), _jvm())
    threading.Thread(target=_watch, args=arguments, daemon=True, name="watch-submitter").start()


def _jvm() -> psutil.Process | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        if (pid := os.getppid()) > 1:
            return psutil.Process(pid)
    return None  # the JVM died before this call


def _watch(submitter: ProcessIdentity, jvm: psutil.Process | None) -> None:
    def is_watched() -> bool:
        return submitter.is_alive() and jvm is not None and is_running(jvm)

    Retrying(retry=retry_if_result(bool), wait=wait_fixed(INTERVAL))(is_watched)
    if submitter.is_alive():
        log.error("the JVM of this job is gone: stopping")
    else:
        log.error("the process that submitted this job (pid %d) is gone: stopping", submitter.pid)
    _end(jvm)
    os._exit(1)


def _end(jvm: psutil.Process | None) -> None:
    """Ask the JVM to end, which ends its Python workers. psutil signals no other process that got the same pid."""
    with contextlib.suppress(psutil.Error):
        if jvm is not None and is_running(jvm):
            jvm.terminate()
