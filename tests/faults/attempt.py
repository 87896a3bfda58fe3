"""One started run of a trial: the process, its output, the chunks it has committed and its end."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from kafka_replication.runtime.events import Event
from tests.faults.process import RESULT

ATTEMPT_SECONDS = 480.0  # a run on local-cluster took 210 s on two processors, beside another one


@dataclass
class Attempt:
    """One started run. Its output goes to a file; chunks are counted as they are committed."""

    number: int
    process: subprocess.Popen[str]
    log: Path
    chunks: int = 0
    result: dict[str, Any] | None = None
    ended: bool = False  # its output did
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, name=f"attempt {self.number}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output, self.log.open("w") as log:
            for line in output:
                log.write(line)
                log.flush()
                with self._changed:
                    self.chunks += str(Event.CHUNK_COMMITTED) in line
                    if line.startswith(RESULT):
                        self.result = json.loads(line.removeprefix(RESULT))
                    self._changed.notify_all()
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    @property
    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def await_chunks(self, count: int, seconds: float = ATTEMPT_SECONDS) -> bool:
        """Whether the run committed so many chunks before it ended."""
        with self._changed:
            self._changed.wait_for(lambda: self.chunks >= count or self.ended, seconds)
        return self.chunks >= count

    def await_line(self, text: str, seconds: float = ATTEMPT_SECONDS) -> bool:
        """Whether the run logged this before it ended."""
        with self._changed:
            self._changed.wait_for(lambda: text in self.text or self.ended, seconds)
        return text in self.text

    def kill(self, signum: signal.Signals = signal.SIGKILL) -> None:
        """Signal the process alone. SIGSTOP returns when it has taken effect."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signum)
        if signum is signal.SIGSTOP:
            while self.process.poll() is None and psutil.Process(self.process.pid).status() != psutil.STATUS_STOPPED:
                time.sleep(0.001)
        if signum is signal.SIGKILL:
            self.end()

    def end(self, seconds: float = ATTEMPT_SECONDS) -> str:
        """Wait for the end: done, nothing_to_do, left (some of it to another run), failed, killed, or hung (it is killed then)."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            self._reader.join(10)
            return "hung"
        self._reader.join(10)
        if self.result is not None:
            return "left" if self.result.get("notes") else str(self.result["outcome"])
        return "killed" if self.process.returncode == -signal.SIGKILL else "crashed"

    @property
    def errors(self) -> list[str]:
        return [] if self.result is None else list(self.result["errors"])
