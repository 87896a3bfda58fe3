"""Limits the records of the next chunk: fewer after a failure, half as many during the search for a refused record."""

from __future__ import annotations

# Most bytes of keys, values and headers, uncompressed, in a chunk, which has at least one record: to send one of large
# records, to send it again and to read it back takes no longer than with many small ones.
CHUNK_BYTES = 256 << 20
GROW_AFTER = 4  # committed chunks; so at most one chunk of five fails where twice the size is always too much


class ChunkSize:
    """The most records of the next chunk, at most ``most``.

    A chunk that failed while it was sent may have been too large for the time it had, so the next one has half of its
    records. After every `GROW_AFTER` committed chunks the number doubles again.
    """

    def __init__(self, most: int) -> None:
        self._most = self._usual = most
        self._committed = 0  # chunks since the number changed
        self._suspects = 0  # the refused record is one of this many next records; 0: none was refused

    @property
    def records(self) -> int:
        """The size of the next chunk. During the search for a refused record: half of the records it can be.

        Each attempt, committed or refused, halves their number. A refused chunk of one record names the record.
        """
        return max(1, min(self._usual, self._suspects // 2)) if self._suspects else self._usual

    def committed(self, count: int) -> None:
        """A chunk of ``count`` source records was committed."""
        self._suspects = max(0, self._suspects - count)
        self._committed += 1
        if self._committed >= GROW_AFTER:
            self._usual, self._committed = min(self._most, 2 * self._usual), 0

    def failed(self, written: int) -> None:
        """A chunk failed after ``written`` records were given to the target; nothing changes if there were none."""
        if written:
            self._usual, self._committed = max(1, min(self._usual, written) // 2), 0

    def refused(self, among: int) -> bool:
        """Note that the target refused one of the next ``among`` records. Returns True if that narrows the search."""
        narrower = not self._suspects or among < self._suspects
        self._suspects = among
        return narrower

    def stop_searching(self) -> None:
        """End the search: the refused record is known."""
        self._suspects = 0
