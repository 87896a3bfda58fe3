"""The order of the records of one key, for targets that keep the newest one only."""

from __future__ import annotations

from typing import Final, Literal

# How the producers of a topic choose the partition of a key: Java's clients, and librdkafka's.
KeyHash = Literal["murmur2", "crc32"]
MURMUR2: Final = "murmur2"
CRC32: Final = "crc32"

_OFFSET_BITS: Final = 48
MOST_OFFSET: Final = (1 << _OFFSET_BITS) - 1
MOST_GENERATION: Final = (1 << 15) - 1


def version(generation: int, offset: int) -> int:
    """A positive number below 2^63 that is higher for each newer record of a key: of a later generation, or in the same
    one of a later offset. Raises ValueError for numbers that are too large for it.
    """
    if not (0 < generation <= MOST_GENERATION and 0 <= offset <= MOST_OFFSET):
        raise ValueError(f"generation {generation} or offset {offset} is too large for a version of 63 bits")
    return generation << _OFFSET_BITS | offset
