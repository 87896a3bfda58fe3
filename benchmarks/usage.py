"""Seconds, processor time, memory and threads of processes, and the processor time of the brokers meanwhile."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Self

import psutil

EVERY = 0.25  # seconds between two looks


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Of a number of processes: wall clock, CPU seconds of all, MB of the largest, threads of the one with most.

    The threads of a JVM count only where there is no other process. ``brokers`` are the brokers' CPU seconds.
    """

    seconds: float
    cpu: float
    brokers: float
    mb: float
    threads: int

    def __add__(self, later: Used) -> Used:
        """The same processes, over both times."""
        return Used(
            seconds=self.seconds + later.seconds,
            cpu=self.cpu + later.cpu,
            brokers=self.brokers + later.brokers,
            mb=max(self.mb, later.mb),
            threads=max(self.threads, later.threads),
        )


def middle(several: Sequence[Used]) -> Used:
    """The medians of times; the most of memory and threads."""
    return Used(
        seconds=median(one.seconds for one in several),
        cpu=median(one.cpu for one in several),
        brokers=median(one.brokers for one in several),
        mb=max(one.mb for one in several),
        threads=max(one.threads for one in several),
    )


@dataclass(frozen=True, slots=True)
class _Spent:
    """CPU seconds since processes were born."""

    looked: float  # those of every process ever seen, at the last look at it
    inherited: float  # those of living processes and of their children that ended and were waited for
    brokers: float


def until_ended(pid: int) -> None:
    """Wait for a child's end and let its parent still ask what it used."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def has_ended(pid: int) -> bool:
    """Whether a child has; its parent may still ask what it used."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


class Usage:
    """A stopwatch: ``with Usage(pids, brokers) as usage: ...``, then ``usage.used``. Counts these processes and all
    below them.

    There are two sums: what each process had used at the last look at it, and what the system says of living processes
    and of those that they waited for. The first misses the time after the last look, the second all processes whose
    parent ended before them. Neither can be too high, so the higher one is taken.
    """

    def __init__(self, processes: Iterable[int], brokers: Iterable[int] = ()) -> None:
        self._roots = [psutil.Process(pid) for pid in processes]
        self._brokers = [psutil.Process(pid) for pid in brokers]
        self._seen: dict[psutil.Process, float] = {}
        self._mb, self._threads, self._jvm_threads = 0.0, 0, 0
        self._looking, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.begin()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        now, began = self._look(), self._began
        self.used = Used(
            seconds=self.seconds,
            cpu=max(now.looked - began.looked, now.inherited - began.inherited),
            brokers=now.brokers - began.brokers,
            mb=self._mb,
            threads=self._threads or self._jvm_threads,
        )

    def begin(self) -> None:
        """Count times from now on; memory and threads count from the start."""
        self._began, self._at = self._look(), time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds until now."""
        return time.monotonic() - self._at

    def _watch(self) -> None:
        while not self._over.wait(EVERY):
            self._look()

    def _look(self) -> _Spent:
        with self._looking:
            inherited = 0.0
            for process in self._living():
                with suppress(psutil.NoSuchProcess):
                    user, system, *of_children = process.cpu_times()[:4]
                    self._seen[process] = user + system
                    inherited += user + system + sum(of_children)
                    self._note(process)
            brokers = sum(sum(broker.cpu_times()[:2]) for broker in self._brokers)
            return _Spent(sum(self._seen.values()), inherited, brokers)

    def _living(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for root in self._roots:
            with suppress(psutil.NoSuchProcess):
                found += [root, *root.children(recursive=True)]
        return [process for process in found if process not in self._brokers]  # which may be children, too

    def _note(self, process: psutil.Process) -> None:
        self._mb = max(self._mb, _largest_mb(process))
        threads = process.num_threads()
        if process.name() == "java":
            self._jvm_threads = max(self._jvm_threads, threads)
        else:
            self._threads = max(self._threads, threads)


def _largest_mb(process: psutil.Process) -> float:
    """The largest resident set that it ever had, where the system says so (VmHWM in proc(5)), else the present one."""
    with suppress(OSError):
        if found := re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE):
            return int(found[1]) * 1024 / 1e6
    resident: int = process.memory_info().rss
    return resident / 1e6
