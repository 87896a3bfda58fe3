"""The estimated size of what a batch holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_replication.wire.batch import Batch
from kafka_replication.wire.codecs import Codec, packed
from kafka_replication.wire.contents import EACH, Contents

RECORDS = bytes(1_000)


def batch(codec: Codec, payload: bytes) -> Batch:
    return Batch(
        base_offset=0,
        leader_epoch=0,
        attributes=codec,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        count=1,
        payload=memoryview(payload),
        checksum=0,
        body=memoryview(b""),
    )


PLAIN = batch(Codec.NONE, RECORDS)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_compressed_batch_has_the_size_of_the_same_batch_without_compression(codec: Codec) -> None:
    contents = Contents()
    assert contents.of(batch(codec, packed(codec, RECORDS))) == contents.of(PLAIN)


def test_what_is_damaged_is_taken_to_be_compressed_as_well_as_the_last_one() -> None:
    contents, good = Contents(), batch(Codec.GZIP, packed(Codec.GZIP, RECORDS))
    sizes = [contents.of(good) for _ in range(EACH)]
    damaged = replace(good, payload=memoryview(b"\0" * len(good.payload)))
    assert contents.of(damaged) == sizes[0]


def test_a_batch_without_records_holds_nothing() -> None:
    assert Contents().of(replace(PLAIN, count=0, payload=memoryview(b""))) == 0
