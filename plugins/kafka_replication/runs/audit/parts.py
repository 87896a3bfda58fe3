"""The size of one task of an audit. Pure.

A task is at most so large that its result comes within seconds: the progress is seen, a worker that dies has lost
little, and a partition is audited by many workers at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from kafka_replication.verification.auditing import Size

PART_OFFSETS = 500_000
PART_BYTES = 128 << 20
T = TypeVar("T")


def parts(work: Iterable[T], size_of: Callable[[T], Size]) -> Iterator[list[T]]:
    """The work in parts, each as large as a task may be, or one piece of work."""
    some, size = list[T](), Size()
    for one in work:
        larger = size + size_of(one)
        if some and (max(larger.records, larger.offsets) > PART_OFFSETS or larger.bytes > PART_BYTES):
            yield some
            some, larger = [], size_of(one)
        some.append(one)
        size = larger
    if some:
        yield some
