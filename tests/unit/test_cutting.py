"""A batch that is cut: its records byte for byte, in every codec, as a producer's own batch of them."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.wire.batch import AS_SENT, Batch, Malformed, batches
from kafka_replication.wire.codecs import packed, unpacked
from kafka_replication.wire.cutting import cut
from tests.support.raw_produce import RawRecord, raw_batch

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
TEXT = st.one_of(st.none(), st.binary(max_size=40))
RECORDS = st.lists(
    st.builds(
        RawRecord,
        key=TEXT,
        value=st.one_of(TEXT, st.just(b"x" * 3_000)),
        headers=st.lists(st.tuples(st.sampled_from([b"", b"a\0b", b"\xff\xfe", b"name"]), TEXT), max_size=2).map(tuple),
        timestamp=st.one_of(st.sampled_from([0, -1, -5, 2**62]), st.integers(0, 2**40)),
    ),
    min_size=1,
    max_size=8,
)


def batch_of(records: list[RawRecord], codec: int = 0, offset: int = 100) -> Batch:
    """As a broker stores it: with a producer's id, epoch and sequence."""
    [plain] = batches(memoryview(raw_batch(records, offset=offset)))
    data = packed(codec, bytes(plain.payload))
    [batch] = batches(memoryview(raw_batch(records, offset=offset, attributes=codec, payload=data)))
    batch.check()
    return batch


@given(RECORDS, st.sampled_from(sorted(CODECS)), st.data())
def test_records_are_kept_byte_for_byte(records: list[RawRecord], codec: int, data: st.DataObject) -> None:
    batch = batch_of(records, codec)
    first = data.draw(st.integers(0, len(records) - 1))
    until = data.draw(st.integers(first + 1, len(records)))
    found = cut(batch, 100 + first, 100 + until)
    assert (found.base_offset, found.until, found.count) == (100 + first, 100 + until, until - first)
    assert found.attributes == batch.attributes and found.base_timestamp == batch.base_timestamp
    # The same records, with times relative to the same one, as another encoder writes them.
    wanted = raw_batch(records[first:until], offset=0, base=records[0].timestamp)
    [alone] = batches(memoryview(wanted))
    assert unpacked(codec, found.payload) == bytes(alone.payload)
    assert found.max_timestamp == max(record.timestamp for record in records[first:until])
    # As it is sent: checksum, and the fields of our own producer.
    header, payload = found.framed(7, 2, 300)
    [sent] = batches(memoryview(header + bytes(payload)))
    sent.check()
    assert (sent.producer_id, sent.count, sent.attributes & ~AS_SENT) == (7, until - first, 0)


@given(RECORDS, st.sampled_from(sorted(CODECS)))
def test_the_whole_batch_is_not_touched(records: list[RawRecord], codec: int) -> None:
    batch = batch_of(records, codec)
    assert cut(batch, 0, 1000) is batch


@given(st.binary(max_size=300_000), st.sampled_from(sorted(CODECS)))
def test_what_is_packed_is_unpacked(content: bytes, codec: int) -> None:
    assert unpacked(codec, memoryview(packed(codec, content))) == content


def test_other_encoders_agree() -> None:
    content = b"".join(b"%d-" % number for number in range(60_000))
    assert gzip.decompress(packed(1, content)) == content
    for codec, name in ((3, "lz4"), (4, "zstd")):
        with pyarrow.input_stream(pyarrow.py_buffer(packed(codec, content)), compression=name) as read:
            assert read.read() == content
        assert unpacked(codec, memoryview(pyarrow.Codec(name).compress(content).to_pybytes())) == content
    alone = pyarrow.Codec("snappy").compress(content).to_pybytes()  # librdkafka's, without a frame
    assert unpacked(2, memoryview(alone)) == content


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_named(codec: int) -> None:
    batch = batch_of([RawRecord(value=b"x" * 1000)] * 3, codec)
    damaged = memoryview(bytes(batch.payload)[: len(batch.payload) // 2])
    with pytest.raises(Malformed, match="the batch at offset 100"):
        cut(replace(batch, payload=damaged), 101, 102)
