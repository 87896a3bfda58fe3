"""Work that may hang, in a thread that nobody has to wait for."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import wait
from contextvars import ContextVar

import pytest

from kafka_replication.runtime.background import begin

HANGS = """
import threading
from kafka_replication.runtime.background import begin

begun = threading.Event()
begin(lambda: begun.set() or threading.Event().wait(), "hangs")
begun.wait()
"""


def test_the_result_and_the_error_come_back() -> None:
    assert begin(lambda: 7, "seven").result() == 7
    with pytest.raises(ZeroDivisionError):
        begin(lambda: 1 // 0, "none").result()


def test_it_has_the_context_of_who_began_it() -> None:
    task = ContextVar[str]("task")
    task.set("replicate")
    assert begin(task.get, "asks").result() == "replicate"


def test_work_that_hangs_holds_up_no_process() -> None:
    assert wait([begin(lambda: subprocess.run([sys.executable, "-c", HANGS], check=True), "child")]).done
