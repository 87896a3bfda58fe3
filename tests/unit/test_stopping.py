"""Signals that ask a process to end, also several at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

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
    assert ended.returncode in {128 + signal.Signals[first], 128 + signal.Signals[second]}


# Each program of its own gets the signal at a moment of its own, while the client's C code works for a good part of them.
IN_A_CLIENT = """
import os, random, time, traceback
from collections import Counter
from confluent_kafka.admin import AdminClient
from kafka_replication.kafka import offsets
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runtime import stopping

partitions = [TopicPartition("topic", number) for number in range(200)]

def interrupted(ready):
    stopping.on_signals(even_ignored=True)
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    os.write(ready, b"x")
    try:
        offsets.high_watermarks(admin, partitions)
    except SystemExit as signal:
        os._exit(signal.code)
    except BaseException:
        traceback.print_exc()
        os._exit(1)

ended = Counter()
for _ in range(100):
    readable, ready = os.pipe()
    if not (child := os.fork()):
        interrupted(ready)
    os.read(readable, 1)
    time.sleep(random.random() * 0.02)
    os.kill(child, 15)
    ended[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
print(dict(ended))
"""


def test_a_signal_that_interrupts_a_client_is_no_error_of_the_client() -> None:
    ended = subprocess.run([sys.executable, "-c", IN_A_CLIENT], capture_output=True, text=True, check=True, timeout=600)
    assert ended.stdout == "{143: 100}\n", ended.stderr


IN_A_WAIT = """
import os, threading
from concurrent.futures import Future
from kafka_replication.kafka import callbacks
from kafka_replication.runtime import stopping

class Interrupted:  # after it gave the lock away, before the wait knows that
    def __init__(self):
        self.lock = threading.RLock()

    def acquire(self, blocking=True):
        return blocking and self.lock.acquire()  # so the condition knows that it is held

    def __enter__(self):
        return self.lock.__enter__()

    def __exit__(self, *error):
        self.lock.__exit__(*error)

    def release(self):
        self.lock.release()
        os.kill(os.getpid(), 15)

class Waiting(Future):
    def result(self, timeout=None):
        condition = threading.Condition(Interrupted())
        with condition:
            condition.wait(timeout)

stopping.on_signals(even_ignored=True)
callbacks.answer_of(Waiting(), 1)
"""


def test_a_signal_that_interrupts_a_wait_between_two_steps_is_no_error_of_its_lock() -> None:
    ended = subprocess.run([sys.executable, "-c", IN_A_WAIT], capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stderr) == (143, "")


CLOSING = """
import logging, os, sys
from sqlalchemy import create_engine, event
from kafka_replication.runtime import stopping

logging.basicConfig()
stopping.on_signals(even_ignored=True)
connection = create_engine("sqlite://").connect()

def again(frame, event, argument):
    if frame.f_code.co_name == "do_close":
        sys.settrace(None)
        os.kill(os.getpid(), 15)

sys.settrace(again)
connection.invalidate()
"""


def test_a_signal_that_interrupts_a_library_is_not_logged_as_its_error() -> None:
    ended = subprocess.run([sys.executable, "-c", CLOSING], capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stderr) == (143, "")


FREEING = """
import os, signal, time
from kafka_replication.runtime import stopping

class Freed:
    def __del__(self):
        os.kill(os.getpid(), signal.{first})

signal.signal(signal.SIGINT, signal.default_int_handler)
stopping.on_signals(even_ignored=True)
Freed()
for _ in range(1000):
    time.sleep(0.01)
"""


@pytest.mark.parametrize(("first", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_that_comes_while_an_object_is_freed_is_not_lost(first: str, code: int) -> None:
    program = FREEING.format(first=first)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == code and "Exception ignored" not in ended.stderr, ended.stderr


# The signal comes where `Condition.wait` has given its lock away, while the new thread holds it in order to say that it has
# begun: the interrupted `with` then gives away what the new thread holds, which ends the new thread with an error.
BEGINNING = """
import os, signal, sys, threading
from kafka_replication.runtime import stopping

holds, may_go_on = threading.Lock(), threading.Lock()
notify_all = threading.Condition.notify_all

def halting(condition):
    if threading.get_ident() != threading.main_thread().ident:
        holds.release()
        may_go_on.acquire()
    notify_all(condition)

def interrupting(frame, event, argument):
    if "saved_state" in frame.f_locals:
        sys.settrace(None)
        holds.acquire()
        os.kill(os.getpid(), signal.{number})
    return interrupting

signal.signal(signal.SIGINT, signal.default_int_handler)
stopping.on_signals(even_ignored=True)
holds.acquire()
may_go_on.acquire()
threading.Condition.notify_all = halting
sys.settrace(interrupting)
try:
    threading.Thread(target=print).start()
finally:
    sys.settrace(None)
    may_go_on.release()
    while len(os.listdir("/proc/self/task")) > 1:
        pass
"""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_thread_that_a_signal_keeps_from_beginning_is_not_told(number: str) -> None:
    program = BEGINNING.format(number=number)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + signal.Signals[number], "", "")


IN_TEXT = """
import os, signal, sys
from kafka_replication.runtime import stopping

signal.signal(signal.SIGINT, signal.default_int_handler)
stopping.on_signals()
try:
    exec("os.kill(os.getpid(), signal.SIGINT)")
except KeyboardInterrupt:
    sys.exit(7)
"""


def test_an_interrupted_program_ends_with_the_exit_code_that_it_asked_for(tmp_path: Path) -> None:
    """Also a module that is interrupted in an `exec` of text."""
    (tmp_path / "interrupted.py").write_text(IN_TEXT)
    line = [sys.executable, "-m", "interrupted"]
    ended = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stderr) == (7, "")


# What drops the exception of a signal, and then goes on; and what closes something meanwhile, for a long time.
DROPPED = """
try:
    os.kill(os.getpid(), signal.{number})
except BaseException:
    pass
wait(100)
print("went on")
"""
CLOSING_FOR_LONG = """
def closing():
    try:
        raise ValueError
    except ValueError:
        wait(2.5)
    wait(2.5)
    print("closed")

try:
    os.kill(os.getpid(), signal.{number})
finally:
    closing()
"""
JOINING = """
threading.Thread(target=lambda: [wait(3), print("closed")]).start()
os.kill(os.getpid(), signal.{number})
"""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize(
    ("program", "said"),
    [(DROPPED, ""), (CLOSING_FOR_LONG, "closed\n"), (JOINING, "closed\n")],
    ids=["dropped", "closing", "joining"],
)
def test_a_signal_ends_a_process_once_whatever_becomes_of_its_exception(program: str, said: str, number: str) -> None:
    text = f"""
import os, signal, threading, time
from kafka_replication.runtime import stopping

def wait(looks):
    until = time.monotonic() + looks * stopping.LOOK
    while time.monotonic() < until:
        time.sleep(0.01)

signal.signal(signal.SIGINT, signal.default_int_handler)
stopping.on_signals(even_ignored=True)
{program.format(number=number)}
"""
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=300)
    assert (ended.stdout, ended.stderr) == (said, "")
    assert ended.returncode == 128 + signal.Signals[number]
