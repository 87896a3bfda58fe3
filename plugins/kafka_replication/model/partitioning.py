"""Chooses the target partitions of a source partition's records."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

KEEP, BY_KEY, ROUND_ROBIN = "keep", "by_key", "round_robin"
BUILT_IN = (KEEP, BY_KEY, ROUND_ROBIN)
FUNCTION = "a function"  # the kind of every other one
BLOCK = 60  # consecutive offsets that `ROUND_ROBIN` and records without a key keep together; 2, 3, 4, 5, 6 divide it


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedBy:
    """The partitioning of a chunk, as its receipt stores it.

    ``name`` is one of the constants above, or a function as ``package.module:function``; ``hash`` is of its module.
    ``partitions`` is the number of target partitions.
    """

    __pydantic_config__: ClassVar = {"strict": True, "extra": "forbid"}  # it stands in ledger entries

    name: str
    hash: str
    partitions: int

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise ValueError(f"not a number of partitions: {self.partitions}")

    def __str__(self) -> str:
        return f"{self.name}{f' ({self.hash})' if self.hash else ''} over {self.partitions} partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioning:
    """The partitioning in a replication file. ``shared``: others write to the target topics, too. ``stated`` is the
    number of target partitions in the file; None if it has none.
    """

    name: str = KEEP
    shared: bool = False
    stated: int | None = None

    @property
    def keeps(self) -> bool:
        """True if each source partition has its own target partition with the same number."""
        return self.name == KEEP

    @property
    def sole(self) -> bool:
        """True if each target partition has one writer."""
        return self.keeps and not self.shared

    @property
    def kind(self) -> str:
        """Its name, or `FUNCTION`."""
        return self.name if self.name in BUILT_IN else FUNCTION

    def targets(self, source: int, partitions: Collection[int]) -> tuple[int, ...]:
        """The target partitions in which records of this source partition may lie. ``partitions`` are the existing
        ones; with `KEEP` the result may be another one.
        """
        return (source,) if self.keeps else tuple(sorted(partitions))

    def moves_keys(self) -> bool:
        """True if another number of target partitions may move the records of a key to another partition."""
        return self.name not in (KEEP, ROUND_ROBIN)


SOLE = Partitioning()


def block(source: int, offset: int, partitions: int) -> int:
    """The target partition of a record without a key, from its source partition and offset only.

    It changes after each block of offsets, not after each offset: if every second offset were a transaction marker,
    half of an even number of partitions would get all records.
    """
    return (source + offset // BLOCK) % partitions
