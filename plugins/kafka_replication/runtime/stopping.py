"""Ends processes in order. A signal raises an exception, so that open transactions are aborted; a process group gets
time to end.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import subprocess
import sys
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGHUP)  # Spark's Python daemon sends SIGHUP to its workers when Spark ends
AGAIN = 0.05  # seconds until a signal is raised again whose exception is known to be lost
LOOK = 0.5  # seconds from one look to the next whether the process leaves; if it does not, the signal is raised again
_PROGRAM = ("<module>", "_run_module_as_main")  # the outermost frame, until Python takes the process down
_NOT_BEGUN = "Exception ignored in thread started by"  # what fails in the thread's own work is told in another way
_NO_LOCK = "cannot release un-acquired lock"
_told = sys.unraisablehook
atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)  # before Python takes its handlers back


class Interrupted(SystemExit, KeyboardInterrupt):
    """Ctrl-C: who catches a KeyboardInterrupt catches it; otherwise the process ends with this exit code, silently.

    Python 3.11 remembers a plain KeyboardInterrupt, but not a subclass, that leaves an `exec` of text, which
    dataclasses use. Under ``python -m`` the process then ends by SIGINT, also if somebody has caught it and the exit
    code is another one.
    """


def on_signals(*, even_ignored: bool = False) -> None:
    """Let the first signal raise SystemExit in the main thread, which must call this; SIGINT raises Interrupted. Later
    ones are ignored: one that arrives while threads are joined would make Python wait for ever for a lock that the
    interrupted join has acquired.

    Without this a signal ends the process at once, and readers of the target wait for its transaction's time-out. A
    signal that is ignored stays ignored, because nohup relies on that. A worker handles ignored signals too
    (``even_ignored``), because its signals come from Spark and not from a terminal.
    """
    for number in SIGNALS:
        if even_ignored or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _leave)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    signal.signal(signal.SIGALRM, _leave_again)
    sys.unraisablehook = _lost
    for handler in logging.getLogger().handlers:
        handler.addFilter(_tells_of_no_signal)


def _lost(lost: Any) -> None:
    """Python drops an exception that comes while it frees an object, and with it the signal: the process goes on.

    A thread that the main thread was just starting may not begin: the interrupted `with` of a condition gives away the
    lock that the new thread holds. That is no error to tell, because the process ends.
    """
    if _asked and isinstance(lost.exc_value, SystemExit):
        signal.setitimer(signal.ITIMER_REAL, AGAIN, LOOK)  # not here, where it would be lost as well
    elif not (_asked and (lost.err_msg or "").startswith(_NOT_BEGUN)):
        _told(lost)


def _tells_of_no_signal(record: logging.LogRecord) -> bool:
    """A library that is interrupted while it closes something logs that as an error, and passes it on."""
    return not record.exc_info or not isinstance(record.exc_info[1], SystemExit)


def raise_again(error: BaseException) -> None:
    """Raise what a signal has raised, if this error was made of it: not all C code of clients passes on an exception
    that comes while it works, and a wait that is interrupted between two steps has no lock to give back.

    Only then: what fails for a reason of its own while something is closed after a signal, as when a transaction is
    aborted, must not end the closing, which `leave_if_asked` would do.
    """
    if isinstance(error.__cause__, SystemExit):
        raise error.__cause__
    if str(error) == _NO_LOCK and isinstance(error.__context__, SystemExit):
        raise error.__context__


_asked = False
_first = 0


def asked() -> bool:
    """True if a signal has asked this process to end. For threads, in which no signal raises."""
    return _asked


def _leave(number: int, _: FrameType | None) -> None:
    """Set a flag and a timer, and raise. Nothing here takes a lock: the next signal may interrupt this function, and
    the lock would never be free again.
    """
    global _asked, _first
    if _asked:
        return
    _asked = True
    _first = number
    signal.setitimer(signal.ITIMER_REAL, LOOK, LOOK)
    leave_if_asked()


def leave_if_asked() -> None:
    """Raise what the first signal has raised, if there was one: at the end of a command, whatever failed afterwards has
    failed because of it.
    """
    if _asked:
        raise (Interrupted if _first == signal.SIGINT else SystemExit)(128 + _first)


def obeyed() -> None:
    """Take the signal for done: who caught its exception has ended what it was to end, and is no failure."""
    global _asked
    signal.setitimer(signal.ITIMER_REAL, 0)
    _asked = False


def _leave_again(_number: int, frame: FrameType | None) -> None:
    """Code that drops every exception, as much of what is written in C does, may have dropped that of the signal. Not
    if one of a signal is on its way up, so that something is closed; nor if the program has ended.
    """
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, SystemExit):
        error = error.__context__
    if error is None and frame is not None and frame.f_code.co_name in _PROGRAM:
        leave_if_asked()


def end_group(process: subprocess.Popen[Any], seconds: float) -> None:
    """End a process that leads its own group, and the whole group: SIGTERM first, SIGKILL after ``seconds``."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        os.killpg(process.pid, signal.SIGKILL)
