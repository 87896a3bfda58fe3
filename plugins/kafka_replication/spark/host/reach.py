"""Finds out if a run could start Spark: looks at its master and this installation, and starts nothing."""

from __future__ import annotations

import importlib
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from os import environ
from pathlib import Path

from kafka_replication.config import Copy
from kafka_replication.connections.port import SparkConnection
from kafka_replication.planning.findings import Finding
from kafka_replication.runtime import extras
from kafka_replication.spark.failures import MASTER_SILENT
from kafka_replication.spark.host.environment import without_secrets
from kafka_replication.spark.host.local import is_local
from kafka_replication.spark.jobs import needed

SECONDS = 3.0
_STANDALONE = re.compile(r"spark://([^/]+)")
_KUBERNETES = re.compile(r"k8s://(?:https?://)?([^/]+)")
_DEFAULT_PORTS = {_STANDALONE: 7077, _KUBERNETES: 443}


def check(spark: SparkConnection, settings: Copy, modules: Sequence[str] = ()) -> Iterator[Finding]:
    """The obstacles to the use of this Spark connection by a run with these settings. Its workers import these
    ``modules`` of the user.

    YARN's address is in Hadoop's files, and not looked at.
    """
    where = f"Spark {spark.master}"
    missing = [name for name in ("pyspark", "py4j") if find_spec(name) is None]
    if missing:
        yield Finding("error", where, f"{' and '.join(missing)} cannot be imported here", extras.install("pyspark"))
    home = environ.get("JAVA_HOME")
    if not (home and (Path(home) / "bin" / "java").exists()) and shutil.which("java") is None:
        yield Finding(
            "error", where, "no Java was found, which spark-submit needs", "install Java 17, or set JAVA_HOME"
        )
    if is_local(spark.master):
        yield from _workers(where, needed(settings))
        yield from _functions(where, modules)
    else:
        if failures := _failures(spark.master):
            yield Finding("error", where, f"the Spark master does not answer: {failures}", MASTER_SILENT.remedy)


def _workers(where: str, modules: Sequence[str]) -> Iterator[Finding]:
    """In local mode the workers import what this process can import."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as e:
            yield Finding("error", where, f"the workers cannot import {name}: {e}", extras.install(e.name or name))


def _functions(where: str, modules: Sequence[str]) -> Iterator[Finding]:
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
            yield Finding(
                "error",
                where,
                f"the workers cannot import {name}: {why}",
                "install its package, or put its folder into PYTHONPATH",
            )


def is_standalone(master: str) -> bool:
    return _STANDALONE.match(master) is not None


def addresses(master: str) -> list[str]:
    """The addresses of a standalone master, the active one and the standby ones; none for other kinds of master."""
    match = _STANDALONE.match(master)
    return match[1].split(",") if match else []


def silent(master: str) -> str:
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
