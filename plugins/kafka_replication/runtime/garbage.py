"""Work without garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_gc() -> Iterator[None]:
    """Stop garbage collection for work that makes many objects and no reference cycles, where searching for cycles is
    time lost: 6 % of a loop over records (py-spy, 1 KiB records), a tenth of loading modules at a process's start.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
