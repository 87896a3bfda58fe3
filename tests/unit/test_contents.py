"""The estimated size of what a batch holds."""

from __future__ import annotations

import random

import pytest

from kafka_replication.wire.batch import Batch, Codec, batches, packed
from kafka_replication.wire.contents import EACH, Contents
from tests.support.raw_produce import RawRecord, raw_batch

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
    )


PLAIN = batch(Codec.NONE, RECORDS)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_compressed_batch_has_the_size_of_the_same_batch_without_compression(codec: Codec) -> None:
    contents = Contents()
    assert contents.of(batch(codec, packed(codec, RECORDS))) == contents.of(PLAIN)


def test_what_is_damaged_is_taken_to_be_compressed_as_well_as_the_last_one() -> None:
    contents, good = Contents(), batch(Codec.GZIP, packed(Codec.GZIP, RECORDS))
    sizes = [contents.of(good) for _ in range(EACH)]
    damaged = good._replace(payload=memoryview(b"\0" * len(good.payload)))
    assert contents.of(damaged) == sizes[0]


def test_a_batch_without_records_holds_nothing() -> None:
    assert Contents().of(PLAIN._replace(count=0, payload=memoryview(b""))) == 0


@pytest.fixture(scope="module")
def mixed() -> list[Batch]:
    """Batches of records that compress well or badly, without compression."""
    dice, made = random.Random("contents"), list[Batch]()
    for number in range(2_000):
        count, noise = dice.choice((1, 7, 100, 400)), dice.choice((4, 40)) if number % 2 else 1
        records = [RawRecord(b"%d" % at, dice.randbytes(noise) * (80 // noise)) for at in range(count)]
        made += batches(memoryview(raw_batch(records)))
    return made


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_batches_that_compress_unequally_and_have_unequal_numbers_of_records(codec: Codec, mixed: list[Batch]) -> None:
    """Also where they take turns."""
    contents, estimated, exact = Contents(), 0, 0
    for plain in mixed:
        payload = memoryview(packed(codec, bytes(plain.payload)))
        estimated += contents.of(plain._replace(attributes=codec, payload=payload))
        exact += Contents().of(plain)
    assert 0.75 < estimated / exact < 1.25, estimated / exact
