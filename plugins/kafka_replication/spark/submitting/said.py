"""Reads from Spark's log the reason for the end of its application, line by line while Spark writes it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from kafka_replication.spark.failures import (
    APPLICATION_REMOVED,
    MASTER_SILENT,
    NOT_REGISTERED,
    SECRET_REFUSED,
    Failure,
)
from kafka_replication.spark.host import reach

# Spark tries three times, 20 s apart, and then waits 20 s more. Two are enough to know.
TRIES = 2
_TRY = re.compile(r"\bFailed to connect to master (\S+)")
_KILLED = re.compile(r"\bApplication has been killed\. Reason: (.+)")
_UNRESPONSIVE = "All masters are unresponsive"
_LOGIN = re.compile(r"SaslException|SaslMessage|AuthEngine|[Aa]uthentication")  # of either of Spark's two protocols
_NOT_SUBMITTED = re.compile(r'^(?:Exception in thread "main" |Error: )?((?:[\w.]+(?:Exception|Error)\b|Invalid ).+)')

# The lines that Spark logs on every healthy start.
_ALWAYS_SAID = re.compile(
    r"^WARNING: Using incubator modules|^Using Spark's default log4j profile|^Setting Spark log level to"
    r"|WARN Utils: (Your hostname, .* resolves to a loopback address|Set SPARK_LOCAL_IP)"
    r"|WARN NativeCodeLoader: |INFO SparkContext: (Running Spark|OS info|Java) "
)


def is_always_said(line: str) -> bool:
    return bool(_ALWAYS_SAID.search(line))


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
        was_hopeless, self._is_hopeless = self._is_hopeless, self._is_hopeless or self._is_refused()
        return self._is_hopeless and not was_hopeless

    def _is_refused(self) -> bool:
        masters = len(reach.addresses(self._master))
        return sum(tries >= TRIES for tries in self._tries.values()) >= max(1, masters)

    @property
    def failure(self) -> Failure | None:
        """The reason why Spark ended the application, or had to; None if its log has none. Asks the master."""
        if self._is_hopeless or (self._killed is not None and _UNRESPONSIVE in self._killed):
            return self._unregistered()
        if self._killed is not None:
            return replace(APPLICATION_REMOVED, what=f"{APPLICATION_REMOVED.what}: {self._killed}")
        return None

    def _unregistered(self) -> Failure:
        if silent := reach.silent(self._master):
            return replace(MASTER_SILENT, what=f"{MASTER_SILENT.what}: {silent}")
        failure = SECRET_REFUSED if self._is_login else NOT_REGISTERED
        return replace(failure, what=f"{failure.what} ({self._master})")
