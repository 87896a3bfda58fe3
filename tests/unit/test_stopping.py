"""Signals that ask a process to end, also several at once."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# The second signal comes at one line that the handler of the first one runs, at whatever depth.
AT_ONE_LINE = """
import os, signal, sys
from kafka_replication.runtime import stopping

lines = 0

def again(frame, event, argument):
    global lines
    if event == "line" and frame.f_code.co_name != "<module>":
        lines += 1
        if lines == {line}:
            os.kill(os.getpid(), signal.{second})
    return again

signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever this process inherits
stopping.on_signals(even_ignored=True)
try:
    sys.settrace(again)
    os.kill(os.getpid(), signal.{first})
finally:
    sys.settrace(None)
    print(stopping.asked())
"""


PAIRS = [("SIGTERM", "SIGHUP"), ("SIGHUP", "SIGTERM"), ("SIGINT", "SIGTERM"), ("SIGTERM", "SIGINT")]


@pytest.mark.parametrize("line", range(1, 6))
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_signal_may_interrupt_the_handler_of_another_one(first: str, second: str, line: int) -> None:
    """Spark's daemon and the operating system may both ask a worker at the same moment."""
    program = AT_ONE_LINE.format(first=first, second=second, line=line)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert ended.stdout == "True\n", ended.stderr
    codes = {128 + signal.Signals[first], 128 + signal.Signals[second], -signal.SIGINT}
    assert ended.returncode in codes - ({-signal.SIGINT} if "SIGINT" not in (first, second) else set())
