"""Two signals at once: the process ends, in order, and does not hang."""

from __future__ import annotations

import subprocess
import sys

from tests.support.programs import ROOT

# Each process gets the second signal at another line of what the first one's handler does, also in what that calls.
PROGRAM = """
import os, signal, sys
from kafka_replication.runtime import stopping


def second_at(number):
    left = number

    def trace(frame, event, _):
        nonlocal left
        if event == "call" and frame.f_code.co_name == "_leave" or frame.f_back.f_trace is not None:
            frame.f_trace = follow
            return follow

    def follow(frame, event, _):
        nonlocal left
        left -= event == "line"
        if left == 0:
            left = -1
            os.kill(os.getpid(), signal.SIGTERM)
        return follow

    return trace


ended = []
for number in range(1, 31):
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # the end of one that hangs
        stopping.on_signals(even_ignored=True)
        sys.settrace(second_at(number))
        try:
            os.kill(os.getpid(), signal.SIGHUP)
        finally:
            assert stopping.asked()
        raise AssertionError("it goes on")
    status = os.waitpid(child, 0)[1]
    ended.append(os.waitstatus_to_exitcode(status))
    if ended[-1] == -signal.SIGALRM:
        break
print(set(ended) <= {128 + signal.SIGHUP, 128 + signal.SIGTERM}, ended)
"""


def test_a_second_signal_in_the_middle_of_the_first_ends_the_process() -> None:
    environment = {"PYTHONPATH": f"{ROOT}/plugins"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("True"), done.stdout + done.stderr
