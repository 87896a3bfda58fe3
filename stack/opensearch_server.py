"""A real OpenSearch on loopback: one node, without TLS and logins, in one process with a pid file and a log.
Elasticsearch 7, of which it is a fork, starts in the same way.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from stack.artifacts import ELASTICSEARCH, OPENSEARCH, Release, jars
from stack.errors import StackError
from stack.java import java
from stack.ports import LOOPBACK, answers, free_ports, is_taken
from stack.processes import ProcessRecord, complaints, end, launch, since, tail

START_SECONDS = 300
STOP_SECONDS = 15
STARTED = "OpenSearch Node started"
JVM = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

_NODE = Path(__file__).with_name("OpenSearchNode.java")
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


class OpenSearchServer:
    """A node in the folder ``state/name``. It survives this program; the same name and folder find it again, with its
    ports and its data. ``settings`` are more settings of the node.
    """

    def __init__(
        self,
        name: str,
        state: Path,
        settings: Mapping[str, str] | None = None,
        release: Release = OPENSEARCH,
    ) -> None:
        self.name, self.folder = name, Path(state).resolve() / name
        self.log = self.folder / "opensearch.log"
        self._settings, self.release = dict(settings or {}), release
        self._record, self._facts = self.folder / "opensearch.pid", self.folder / "ports.json"
        self._log_start = 0

    def __str__(self) -> str:
        return f"OpenSearch {self.name} ({LOOPBACK}:{self.port})"

    @property
    def port(self) -> int:
        """The port of the REST interface; known once the node was started."""
        return self._ports()[0]

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def process(self) -> ProcessRecord | None:
        """The living process, or None."""
        record = ProcessRecord.read(self._record)
        return record if record is not None and record.alive else None

    def start(self) -> None:
        """Start the node unless it runs, and wait until it serves. Its data is kept. Raises StackError."""
        if self.process is None:
            folder = jars(self.release)
            self.folder.mkdir(parents=True, exist_ok=True)
            self._settle_ports()
            self._launch(folder)
        try:
            self._wait_started(time.monotonic() + START_SECONDS)
        except BaseException:
            self.stop()
            raise

    def _launch(self, folder: Path) -> None:
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        command = [
            java(),
            *JVM,
            f"-Djava.io.tmpdir={self.folder}",
            f"-Dlog4j2.configurationFile={_LOG_SETTINGS}",
            "-cp",
            f"{folder}/*",
            str(self._source()),
            str(self.folder / "home"),
            *map(str, self._ports()),
            *(f"{name}={value}" for name, value in self._settings.items()),
        ]
        launch(command, self.log, self._record, cwd=self.folder)

    def _source(self) -> Path:
        """The program of the node."""
        if self.release is not ELASTICSEARCH:
            return _NODE
        renamed = self.folder / _NODE.name
        renamed.write_text(_NODE.read_text().replace("org.opensearch.", "org.elasticsearch."))
        return renamed

    def _wait_started(self, deadline: float) -> None:
        while not (answers(self.port) and STARTED in since(self.log, self._log_start) and self._has_recovered()):
            last = f"the end of {self.log}:\n{tail(self.log, offset=self._log_start)}"
            if self.process is None:
                named = complaints(self.log, offset=self._log_start)
                raise StackError(
                    f"{self} ended while starting\n{named}\n{last}",
                    "the log names the cause; it needs a JDK 17 or newer, not only a JRE: it compiles its first class",
                )
            if time.monotonic() > deadline:
                raise StackError(
                    f"{self} has not started within {START_SECONDS} s; {last}", "see the log; free memory or processors"
                )
            time.sleep(0.1)

    def _has_recovered(self) -> bool:
        """True once every index can be read: a node that starts answers before."""
        try:
            with urllib.request.urlopen(f"{self.url}/_cluster/health", timeout=5) as answer:
                return json.load(answer)["status"] in ("green", "yellow")
        except (OSError, ValueError):
            return False

    def kill(self) -> None:
        """SIGKILL, as a machine that loses power; returns when the process is gone."""
        end(self._record, signal.SIGKILL, str(self), STOP_SECONDS)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after a while; the data stays."""
        end(self._record, signal.SIGTERM, str(self), STOP_SECONDS)

    def wipe(self) -> None:
        """Stop, and forget everything that was stored."""
        if self._facts.exists():
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ports(self) -> list[int]:
        if not self._facts.exists():
            raise StackError(f"OpenSearch {self.name} was never started in {self.folder}", "start it first")
        return [int(port) for port in json.loads(self._facts.read_text())]

    def _settle_ports(self) -> None:
        """Those of the last start where they are free, else new ones."""
        if not self._facts.exists() or any(map(is_taken, self._ports())):
            self._facts.write_text(json.dumps(free_ports(2)) + "\n")
