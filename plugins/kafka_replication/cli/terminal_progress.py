"""Shows a run in a terminal: its progress on stderr, and the name of the file with Spark's log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from kafka_replication.cli.command_frame import Result
from kafka_replication.config import Replication
from kafka_replication.connections import EnvironmentConnections
from kafka_replication.model.errors import NotAdmitted, ReplicationError, Unreachable
from kafka_replication.model.times import amount, duration
from kafka_replication.model.trouble import Trouble
from kafka_replication.reporting.progress import Progress
from kafka_replication.runs.reporting import standing, without_target
from kafka_replication.runs.run import Run
from kafka_replication.runtime import stopping
from kafka_replication.spark.launcher import Launcher, terminal_launcher
from kafka_replication.spark.submit import OutputFile

if TYPE_CHECKING:
    from rich.console import Console

    from kafka_replication.reporting.status import PartitionStatus

WATCH_SECONDS = 2.0


def with_spark(run: Run, verbose: bool, action: Callable[[Run, Launcher], Result]) -> Result:
    """Act with a launcher, and show the progress. Spark's log goes to a file. It is removed after success, and named
    after a failure. With ``verbose`` the log goes to stderr.
    """
    output = None if verbose else OutputFile(run.replication.name)
    code = 1
    try:
        if verbose or not sys.stderr.isatty():
            result = action(run, launcher_for(run.replication, output))
        else:
            from rich.console import Console  # only a terminal needs it

            with displayed(run, Console(stderr=True)) as shown:
                result = action(shown, launcher_for(run.replication, output))
        code = result[2]
        return result
    finally:
        if output is not None and code == 0:
            output.remove()
        elif output is not None and output.path is not None:
            typer.echo(f"Spark's log: {output.path}", err=True)


def launcher_for(replication: Replication, output: OutputFile | None) -> Launcher:
    spark = replication.spark
    return terminal_launcher(lambda: EnvironmentConnections().spark(spark.connection), spark.conf, output)


def status_rows(run: Run) -> list[PartitionStatus]:
    """The state of each partition. If the target cannot be used, it is the state that the store knows."""
    try:
        return standing(run, Run.snapshot_to_show)
    except (Unreachable, NotAdmitted) as error:
        if rows := without_target(run, Trouble.of(error)):
            return rows
        raise


@contextmanager
def displayed(run: Run, console: Console) -> Iterator[Run]:
    """The run with one display of its progress in the last line of the terminal; log lines appear above it."""
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Display

    display = Display(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[said]}"),
        console=console,
        transient=True,
    )
    task = display.add_task(run.replication.name, total=None, said="preparing")
    newest: list[Progress] = []

    def show(progress: Progress) -> None:
        newest[:] = [progress]
        display.update(task, total=100, completed=progress.percent, said=summary(progress))

    with display, _logging_to(sys.stderr):  # which is rich's now: it prints above the display
        yield replace(run, show=show)
    for progress in newest:
        console.print(f"{run.replication.name}: {progress}", markup=False, highlight=False, soft_wrap=True)


def summary(progress: Progress) -> str:
    """The progress in few words, to stand beside a bar. A narrow terminal cuts the end off."""
    parts = [f"{progress.percent}%"]
    if progress.reading_back:
        parts.append("reading back")
    elif progress.seconds_left:
        parts.append(f"{duration(progress.seconds_left)} left")
    if progress.waiting is not None:
        parts.append("waits for a transaction")
    if progress.throttled >= 1:
        parts.append(f"held back {duration(progress.throttled)}")
    speed = f"{amount(progress.bytes_per_second)}/s"
    parts += [speed, f"{progress.records:,} records", f"{progress.ranges_done:,}/{progress.ranges:,} ranges"]
    return "  ".join(parts)


@contextmanager
def _logging_to(stream: Any) -> Iterator[None]:
    """Redirect the root logger's handlers to this stream: a handler keeps the stream that it was created with."""
    handlers = [each for each in logging.getLogger().handlers if type(each) is logging.StreamHandler]
    before = [each.setStream(stream) for each in handlers]
    try:
        yield
    finally:
        for handler, stream_before in zip(handlers, before, strict=True):
            if stream_before is not None:
                handler.setStream(stream_before)


def watch(read: Callable[[], str]) -> None:
    """Show what ``read`` returns, again every two seconds, until Ctrl-C. Without a terminal each text is printed."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                text = _read(read)
                if console.is_terminal:
                    live.update(Text(text, no_wrap=True), refresh=True)
                else:
                    typer.echo(text + "\n")
                time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        stopping.obeyed()


def _read(read: Callable[[], str]) -> str:
    try:
        return read()
    except ReplicationError as e:
        if not e.retriable:
            raise
        return f"error: {e.what}\nremedy: {e.remedy}"
