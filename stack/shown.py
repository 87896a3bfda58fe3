"""Shows how far something long is: one bar in a terminal, else a line for each tenth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

Show = Callable[[int], None]  # how many of all are done


@contextmanager
def shown(what: str, total: int, console: Console | None = None) -> Iterator[Show]:
    """A function to call again and again with how many are done."""
    console = console or Console(soft_wrap=True, highlight=False)
    if console.is_terminal:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(what, total=total)
            yield lambda done: progress.update(task, completed=done)
    else:
        yield tenths(what, total, console.print)


def tenths(what: str, total: int, say: Callable[[str], None]) -> Show:
    """Say it once for each tenth that is passed."""
    said = 0

    def show(done: int) -> None:
        nonlocal said
        tenth = 10 * done // total if total else 10
        if tenth > said:
            said = tenth
            say(f"{what}: {done} of {total} ({10 * tenth}%)")

    return show
