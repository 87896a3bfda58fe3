"""Names of headers, byte for byte, in the records of a batch: https://kafka.apache.org/documentation/#record"""

from __future__ import annotations

from kafka_replication.wire.repacking import number_at

NUL = b"\0"


def nul_in_names(data: bytes, count: int) -> dict[int, bool]:
    """The records of a batch by their offsets in it, each with True if it has a header whose name has a NUL. ``data``
    are the ``count`` records without compression.

    Raises ValueError and IndexError for malformed records.
    """
    found, at = dict[int, bool](), 0
    for _ in range(count):
        length, at = number_at(data, at)
        end = at + (length >> 1)
        if length & 1 or end > len(data):
            raise ValueError("a record is cut")
        _, at = number_at(data, at + 1)  # behind the attributes: the time
        offset, at = number_at(data, at)
        at = _behind(data, _behind(data, at))  # key and value
        headers, at = number_at(data, at)
        has = False
        for _ in range(headers >> 1):
            name = at
            at = _behind(data, name)
            has = has or NUL in data[at - _length(data, name) : at]
            at = _behind(data, at)
        found[offset >> 1] = has
        if at != end:
            raise ValueError("a record does not end where it says")
    if at != len(data):
        raise ValueError("there is more behind its last record")
    return found


def _length(data: bytes, at: int) -> int:
    """The length of the field that begins here; 0 also for null."""
    length, _ = number_at(data, at)
    return 0 if length & 1 else length >> 1


def _behind(data: bytes, at: int) -> int:
    """The place behind the field that begins here."""
    length, at = number_at(data, at)
    return at if length & 1 else at + (length >> 1)
