"""Tells which header names the client has cut: librdkafka's ends a name at its first NUL, and nothing shows that.

So the batches that have headers are read a second time, as they are stored, over a connection of our own.
"""

from __future__ import annotations

from kafka_replication.kafka.batch_scan import BatchScan
from kafka_replication.model.errors import SessionEnded
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.verification.digests import Headers
from kafka_replication.wire.batch import CODEC, Malformed
from kafka_replication.wire.contents import NUL, nul_in_names, unpacked

CUT = "it has a header whose name has a NUL, where the client would cut it"


class HeaderNames:
    """Compares with the stored batch. A name that the client has cut stands in the batch with a NUL behind it. So if no
    name of a record stands in its batch like that, none was cut; otherwise every record of the batch is looked at, and
    so it is where compaction may have removed the record after the client read it.
    """

    def __init__(self, at: TopicPartition, scan: BatchScan) -> None:
        self._at, self._scan = at, scan
        self._first = self._until = 0  # the source offsets of the batch
        self._data, self._count = b"", 0  # its records
        self._whole = set[str]()  # names that the client has cut nowhere in the batch
        self._cut: dict[int, bool] | None = None  # by offset in the batch, if each record was looked at
        self._why = CUT

    def close(self) -> None:
        self._scan.close()

    def wrong(self, offset: int, headers: Headers) -> str | None:
        """The reason why these header names, as the client gives them, are not those of the record at this offset of
        the source, or may not be; None if they are. Ask for records with headers, in the order of their offsets.
        Raises Unreachable, Stalled, GapFound, and SessionEnded if the source no longer has the record.
        """
        if not self._first <= offset < self._until:
            self._go_to(offset)
        if self._cut is None:
            new = {name for name, _ in headers if name not in self._whole}
            if not any(name.encode() + NUL in self._data for name in new):
                self._whole |= new
                return None
            self._look_at_each()
        assert self._cut is not None
        if (cut := self._cut.get(offset - self._first)) is None:
            raise self._gone(offset)
        return self._why if cut else None

    def _go_to(self, offset: int) -> None:
        self._scan.go_to(offset)
        try:
            batch = self._scan.peek(offset + 1)
            if batch is None or batch.base_offset > offset:
                raise self._gone(offset)
            data = unpacked(batch.attributes & CODEC, batch.payload)
            self._first, self._until, self._data, self._count = batch.base_offset, batch.until, data, batch.count
            self._whole, self._cut, self._why = set(), None, CUT
            if batch.count != batch.last_offset_delta + 1:
                self._look_at_each()
        except (Malformed, ValueError) as e:
            self._doubt(offset, offset + 1, e)

    def _gone(self, offset: int) -> SessionEnded:
        return SessionEnded(
            f"{self._at}: the record at offset {offset} was read, but its leader does not have it any more",
            "a new session reads on",
        )

    def _look_at_each(self) -> None:
        try:
            self._cut = nul_in_names(self._data, self._count)
        except (ValueError, IndexError) as e:
            self._doubt(self._first, self._until, e)

    def _doubt(self, first: int, until: int, error: Exception) -> None:
        """Say of all these offsets that their names cannot be seen: nothing is copied on a guess."""
        self._first, self._until, self._cut = first, until, dict.fromkeys(range(until - first), True)
        self._why = f"the names of its headers cannot be compared with the stored ones ({error})"
