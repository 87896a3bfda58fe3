"""Small batches that follow each other are sent as one: how large that one may be, and what is kept until then."""

from __future__ import annotations

import pytest

from kafka_replication.kafka.engines.batch.packing import TOGETHER, Packing
from kafka_replication.ledger.placement import KafkaSegments
from kafka_replication.wire.batch import CODEC, Batch, batches
from kafka_replication.wire.codecs import packed, unpacked
from kafka_replication.wire.contents import Contents
from tests.support.raw_produce import FRAME, RawRecord, raw_batch


class Kept:
    """A `BatchWriter` that keeps what it gets."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def write(self, batch: Batch) -> None:
        self.batches.append(batch)

    def finish(self, digest: str) -> KafkaSegments:
        return KafkaSegments()


def of_value(value: bytes, offset: int, codec: int = 0) -> bytes:
    records = [RawRecord(value=value)]
    payload = packed(codec, raw_batch(records)[FRAME:])
    return raw_batch(records, offset, attributes=codec, payload=payload)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_batches_that_are_compressed_better_than_the_estimate_says(codec: int) -> None:
    """Else many small ones become one that a consumer has no memory for."""
    kept, contents = Kept(), Contents()
    packing = Packing(kept, 10_000_000)
    values = [bytes(range(256)), *[bytes(2_000_000)] * 15]
    for offset, value in enumerate(values):
        [batch] = batches(memoryview(of_value(value, offset, codec)))
        packing.add(batch, contents.of(batch))
    packing.hexdigest()
    sizes = [len(unpacked(batch.attributes & CODEC, batch.payload)) for batch in kept.batches]
    assert sum(batch.count for batch in kept.batches) == len(values)
    assert max(sizes) <= max(2 * TOGETHER, 2_000_000 + 100)


def test_a_small_batch_does_not_keep_the_answer_that_it_came_in() -> None:
    """An answer may have 4 MB of aborted records around it."""
    packing = Packing(Kept(), 1_000_000)
    answer = bytearray(of_value(b"v", 0) + bytes(4_000_000))
    [batch] = batches(memoryview(answer)[: len(of_value(b"v", 0))])
    packing.add(batch, 1)
    del batch
    answer.clear()  # raises BufferError if a part of it is in use
    assert packing.count == 1
