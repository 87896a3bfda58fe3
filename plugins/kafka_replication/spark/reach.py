"""Finds out if a run could start Spark: looks at its master and this installation, and starts nothing.

Reads from Spark's log the reason for the end of its application, line by line while Spark writes it.
"""

from __future__ import annotations

import importlib
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from os import environ
from pathlib import Path

from kafka_replication.config import Copy
from kafka_replication.connections import SparkConnection
from kafka_replication.model.trouble import Trouble
from kafka_replication.runtime import extras
from kafka_replication.spark.jobs import (
    APPLICATION_REMOVED,
    MASTER_SILENT,
    NOT_REGISTERED,
    SECRET_REFUSED,
    Failure,
    needed,
)
from kafka_replication.spark.local import is_local
from kafka_replication.spark.workspace import without_secrets

SECONDS = 3.0
_STANDALONE = re.compile(r"spark://([^/]+)")
_KUBERNETES = re.compile(r"k8s://(?:https?://)?([^/]+)")
_DEFAULT_PORTS = {_STANDALONE: 7077, _KUBERNETES: 443}


def check(spark: SparkConnection, settings: Copy, modules: Sequence[str] = ()) -> Iterator[Trouble]:
    """The obstacles to the use of this Spark connection by a run with these settings. Its workers import these
    ``modules`` of the user.

    YARN's address is in Hadoop's files, and not looked at.
    """
    where = f"Spark {spark.master}"
    missing = [name for name in ("pyspark", "py4j") if find_spec(name) is None]
    if missing:
        yield Trouble("error", where, f"{' and '.join(missing)} cannot be imported here", extras.install("pyspark"))
    home = environ.get("JAVA_HOME")
    if not (home and (Path(home) / "bin" / "java").exists()) and shutil.which("java") is None:
        yield Trouble(
            "error", where, "no Java was found, which spark-submit needs", "install Java 17, or set JAVA_HOME"
        )
    if is_local(spark.master):
        for name in needed(settings):  # the workers import what this process can import
            try:
                importlib.import_module(name)
            except ImportError as e:
                yield Trouble("error", where, f"the workers cannot import {name}: {e}", extras.install(e.name or name))
        yield from _functions(where, modules)
    elif failures := _failures(spark.master):
        yield Trouble("error", where, f"the Spark master does not answer: {failures}", MASTER_SILENT.remedy)


def _functions(where: str, modules: Sequence[str]) -> Iterator[Trouble]:
    """Findings about the user's functions. A worker has its own Python. Airflow, for example, adds folders only to the
    path of its own processes.
    """
    for name in modules:
        python = environ.get("PYSPARK_PYTHON", sys.executable)
        done = subprocess.run(
            [python, "-c", f"import {name}"], env=without_secrets(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["it ended"])[-1]
            yield Trouble(
                "error",
                where,
                f"the workers cannot import {name}: {why}",
                "install its package, or put its folder into PYTHONPATH",
            )


def is_standalone(master: str) -> bool:
    return _STANDALONE.match(master) is not None


def silent_master(master: str) -> str:
    """The errors of the standalone masters at their addresses if no one answers; else empty, as for other masters."""
    return _failures(master) if is_standalone(master) else ""


def _failures(master: str) -> str:
    for pattern, default in _DEFAULT_PORTS.items():
        if match := pattern.match(master):
            failures = [_connect(address, default) for address in match[1].split(",")]
            return "; ".join(failures) if all(failures) else ""
    return ""


def _connect(address: str, default: int) -> str:
    """The error of a connection to this address; empty if there is an answer."""
    host, _, port = address.rpartition(":") if ":" in address else (address, "", str(default))
    with suppress(ValueError):
        try:
            socket.create_connection((host.strip("[]"), int(port)), SECONDS).close()
            return ""
        except OSError as e:
            return f"{address}: {e}"
    return f"{address} has no port"


# Spark tries three times, 20 s apart, and then waits 20 s more. Two are enough to know.
TRIES = 2
_TRY = re.compile(r"\bFailed to connect to master (\S+)")
_KILLED = re.compile(r"\bApplication has been killed\. Reason: (.+)")
_UNRESPONSIVE = "All masters are unresponsive"
_LOGIN = re.compile(r"SaslException|SaslMessage|AuthEngine|[Aa]uthentication")  # of either of Spark's two protocols
_NOT_SUBMITTED = re.compile(r'^(?:Exception in thread "main" |Error: )?((?:[\w.]+(?:Exception|Error)\b|Invalid ).+)')

# The lines that Spark logs on every healthy start.
ALWAYS_SAID = re.compile(
    r"^WARNING: Using incubator modules|^Using Spark's default log4j profile|^Setting Spark log level to"
    r"|WARN Utils: (Your hostname, .* resolves to a loopback address|Set SPARK_LOCAL_IP)"
    r"|WARN NativeCodeLoader: |INFO SparkContext: (Running Spark|OS info|Java) "
)


class SparkLog:
    """One application's log. One thread calls `hear`, other threads read the `failure`."""

    def __init__(self, master: str) -> None:
        self._master = master
        self._tries = Counter[str]()
        self._is_login = self._is_hopeless = False
        self._killed: str | None = None
        self.not_submitted = ""  # the reason why spark-submit itself ended, if its log has it

    def hear(self, line: str) -> bool:
        """Read one line. Returns True once: when this line shows that no master will take the application."""
        self._is_login = self._is_login or bool(_LOGIN.search(line))
        if not self.not_submitted and (match := _NOT_SUBMITTED.search(line)):
            self.not_submitted = match[1].strip()[:300]
        if match := _KILLED.search(line):
            self._killed = match[1].strip()
        if match := _TRY.search(line):
            self._tries[match[1]] += 1
        was_hopeless = self._is_hopeless
        # The addresses of a standalone master are the active one and the standby ones.
        refused, match = sum(tries >= TRIES for tries in self._tries.values()), _STANDALONE.match(self._master)
        self._is_hopeless = was_hopeless or refused >= (len(match[1].split(",")) if match else 1)
        return self._is_hopeless and not was_hopeless

    @property
    def failure(self) -> Failure | None:
        """The reason why Spark ended the application, or had to; None if its log has none. Asks the master."""
        if self._is_hopeless or (self._killed is not None and _UNRESPONSIVE in self._killed):
            if silent := silent_master(self._master):
                return replace(MASTER_SILENT, what=f"{MASTER_SILENT.what}: {silent}")
            failure = SECRET_REFUSED if self._is_login else NOT_REGISTERED
            return replace(failure, what=f"{failure.what} ({self._master})")
        if self._killed is not None:
            return replace(APPLICATION_REMOVED, what=f"{APPLICATION_REMOVED.what}: {self._killed}")
        return None
