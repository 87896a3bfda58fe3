"""One range's copy in a process of its own, to be killed: ``python -m tests.support.copy_process JOB_FILE [CHUNKS:CALLS]``.

Each chunk is logged to stdout as it is committed; the last line is ``RESULT`` and the outcome as JSON.

With CHUNKS:CALLS the process dies by SIGKILL so many function calls (Python's and C's, such as those of the Kafka client) after it
committed so many chunks, at the latest as the next one is committed. Calls, unlike seconds, are the same on a fast and on a slow machine.
"""

from __future__ import annotations

import _thread
import logging
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from kafka_replication.runtime.events import Event
from kafka_replication.spark.jobs import BUNDLE, JOB
from kafka_replication.spark.worker import execute


@dataclass
class Death:
    """Counts chunks, then calls."""

    chunks: int
    calls: int

    def see(self, record: logging.LogRecord) -> bool:
        """A filter that lets every log line pass."""
        event = getattr(record, "event", None)
        if event is Event.CHUNK_COMMITTED:
            self.chunks -= 1
        if self.chunks < 0:
            self._die()
        elif self.chunks == 0 and event in (Event.COPY_STARTED, Event.CHUNK_COMMITTED):
            sys.setprofile(self._count)
        return True

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        self.calls -= 1
        if self.calls == 0:
            # By another thread, which gets its turn inside the call where that waits: a commit may be under way.
            _thread.start_new_thread(self._die, ())

    def _die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def main(job_file: str, death: str = "") -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    if death:
        chunks, calls = map(int, death.split(":"))
        logging.getLogger().handlers[0].addFilter(Death(chunks, calls).see)
    job = JOB.validate_json(Path(job_file).read_bytes())
    print("RESULT", execute(JOB.dump_json(replace(job, tasks=[])), BUNDLE.dump_json(job.tasks[:1])), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
