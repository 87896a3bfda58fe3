"""The names of headers in stored batches: a NUL in one is found, at its offset, and damage is never passed over."""

from __future__ import annotations

import pytest

from kafka_replication.kafka.batch_scan import CUT, BatchScan, HeaderNames
from kafka_replication.kafka.callbacks import Throttling
from kafka_replication.model.errors import SessionEnded
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.wire.batch import Batch, batches
from kafka_replication.wire.contents import nul_in_names
from tests.support.raw_produce import FRAME, RawRecord, raw_batch

USUAL = RawRecord(b"a\0b", b"\0" * 300, ((b"", b"\0"), (b"a", b""), (b"n" * 200, None), (b"\xff", b"a\0b")), 5)


def contents(*records: RawRecord) -> bytes:
    return raw_batch(records)[FRAME:]


@pytest.mark.parametrize("name", [b"\0", b"a\0", b"\0b", b"n" * 200 + b"\0"])
def test_a_nul_is_found_wherever_it_stands(name: bytes) -> None:
    odd = RawRecord(None, None, ((b"a", b"content"), (name, None)), -1)
    assert nul_in_names(contents(USUAL, odd, USUAL, odd, RawRecord()), 5) == {
        0: False,
        1: True,
        2: False,
        3: True,
        4: False,
    }


def test_a_nul_elsewhere_is_none() -> None:
    assert nul_in_names(contents(USUAL, RawRecord(None, None), USUAL), 3) == dict.fromkeys(range(3), False)


def test_damage_is_named() -> None:
    data = contents(USUAL, USUAL)
    for length in range(len(data)):
        with pytest.raises((ValueError, IndexError)):
            nul_in_names(data[:length], 2)
    for count in (1, 3):
        with pytest.raises((ValueError, IndexError)):
            nul_in_names(data, count)


AT = TopicPartition("orders", 0)


class Stored(BatchScan):
    """The leader has this one batch."""

    def __init__(self, batch: Batch) -> None:
        super().__init__({}, AT, 1.0, Throttling(str(AT), "source"))
        self._batch = batch

    def peek(self, until: int) -> Batch | None:
        return self._batch if self.position < self._batch.until and self._batch.base_offset < until else None


def test_names_of_a_record_that_compaction_took_meanwhile_are_not_called_whole() -> None:
    """Its batch had four records, and has two now: the client may have read the others before."""
    odd = RawRecord(b"k", b"v", ((b"a\0b", b"content"),))
    [batch] = batches(memoryview(raw_batch([USUAL, odd], offset=100)))
    stored = batch._replace(last_offset_delta=3)
    names = HeaderNames(AT, Stored(stored))
    assert [names.wrong(offset, (("a", b"content"),)) for offset in (100, 101)] == [None, CUT]
    for offset in (102, 103, 104, 99):
        with pytest.raises(SessionEnded, match=f"orders-0: the record at offset {offset} was read, but its leader"):
            HeaderNames(AT, Stored(stored)).wrong(offset, (("gone", b"content"),))
