"""Batches that are cut or packed into one: their records byte for byte, in every codec, as a producer's own batch of them."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.wire.batch import (
    AS_SENT,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    Batch,
    Malformed,
    batches,
    packed,
    unpacked,
)
from kafka_replication.wire.contents import repacked
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
    [batch] = batches(memoryview(raw_batch(records, offset=offset, attributes=codec, payload=data)), checked=True)
    return batch


@given(RECORDS, st.sampled_from(sorted(CODECS)), st.data())
def test_records_are_kept_byte_for_byte(records: list[RawRecord], codec: int, data: st.DataObject) -> None:
    batch = batch_of(records, codec)
    first = data.draw(st.integers(0, len(records) - 1))
    until = data.draw(st.integers(first + 1, len(records)))
    found, _ = repacked([batch], 100 + first, 100 + until)
    assert (found.base_offset, found.until, found.count) == (100 + first, 100 + until, until - first)
    assert found.attributes == batch.attributes and found.base_timestamp == batch.base_timestamp
    # The same records, with times relative to the same one, as another encoder writes them.
    wanted = raw_batch(records[first:until], offset=0, base=records[0].timestamp)
    [alone] = batches(memoryview(wanted))
    assert unpacked(codec, found.payload) == bytes(alone.payload)
    assert found.max_timestamp == max(record.timestamp for record in records[first:until])
    # As it is sent: checksum, and the fields of our own producer.
    header, payload = found.framed(7, 2, 300)
    [sent] = batches(memoryview(header + bytes(payload)), checked=True)
    assert (sent.producer_id, sent.count, sent.attributes & ~AS_SENT) == (7, until - first, 0)


@given(st.lists(RECORDS, min_size=2, max_size=5), st.sampled_from(sorted(CODECS)), st.integers(0, 9))
def test_batches_become_one(parts: list[list[RawRecord]], codec: int, hole: int) -> None:
    """As one encoder writes all their records; offsets between them, as of an aborted transaction, are left out."""
    together, offset = list[Batch](), 100
    for records in parts:
        together.append(batch_of(records, codec, offset))
        offset += len(records) + hole
    records = [record for part in parts for record in part]
    found, _ = repacked(together, 100, offset)
    assert (found.base_offset, found.count, found.last_offset_delta) == (100, len(records), len(records) - 1)
    [alone] = batches(memoryview(raw_batch(records, offset=0, base=records[0].timestamp)))
    assert unpacked(codec, found.payload) == bytes(alone.payload)
    assert (found.base_timestamp, found.max_timestamp) == (alone.base_timestamp, alone.max_timestamp)
    header, payload = found.framed(7, 2, 300)
    [sent] = batches(memoryview(header + bytes(payload)), checked=True)
    assert sent.attributes & ~AS_SENT == 0


@given(RECORDS, st.sampled_from(sorted(CODECS)), st.data())
def test_a_compacted_batch_has_no_holes_any_more(records: list[RawRecord], codec: int, data: st.DataObject) -> None:
    """As one encoder writes those of its records that are left, in the part that is wanted; there may be none."""
    left = sorted(data.draw(st.sets(st.integers(0, 200), min_size=len(records), max_size=len(records))))
    until = data.draw(st.integers(1, left[-1] + 2))
    first = data.draw(st.integers(0, until - 1))
    horizon = records[0].timestamp - 9  # compaction may have written the time of a deletion in its place
    [batch] = batches(memoryview(raw_batch(records, 100, horizon, attributes=DELETE_HORIZON, offsets=left)))
    packed_ = batch._replace(
        attributes=batch.attributes | codec, payload=memoryview(packed(codec, bytes(batch.payload)))
    )
    found, _ = repacked([packed_], 100 + first, 100 + until)
    wanted = [record for record, at in zip(records, left, strict=True) if first <= at < until]
    assert (found.count, found.last_offset_delta, found.is_as_sent) == (len(wanted), len(wanted) - 1, True)
    if wanted:
        [alone] = batches(memoryview(raw_batch(wanted, offset=0, base=horizon)))
        assert unpacked(codec, found.payload) == bytes(alone.payload)
        assert (found.base_timestamp, found.max_timestamp) == (horizon, alone.max_timestamp)


@given(st.lists(RECORDS, min_size=1, max_size=3), st.integers(0, 2**40))
def test_a_time_that_the_broker_gave_is_that_of_each_record(parts: list[list[RawRecord]], given: int) -> None:
    """The broker writes it as the latest one, and leaves the rest of the batch as it was."""
    together, offset, wanted = list[Batch](), 100, list[RawRecord]()
    for number, records in enumerate(parts):
        batch = batch_of(records, 3, offset)
        together.append(batch._replace(attributes=3 | LOG_APPEND_TIME, max_timestamp=given + number))
        wanted += [replace(record, timestamp=given + number) for record in records]
        offset += len(records)
    found, _ = repacked(together, 100, offset)
    [alone] = batches(memoryview(raw_batch(wanted, offset=0, base=given)))
    assert unpacked(3, found.payload) == bytes(alone.payload)
    assert (found.base_timestamp, found.max_timestamp) == (given, given + len(parts) - 1)
    assert found.is_as_sent


def test_many_records_whose_numbers_need_more_bytes() -> None:
    """Numbers, times and lengths beyond those that are kept ready."""
    records = [RawRecord(value=b"x" * (number % 7), timestamp=number * 3) for number in range(6_000)]
    records[77] = RawRecord(value=b"x" * 100_000, timestamp=2**50)
    found, _ = repacked([batch_of(records, 3, 0), batch_of(records, 3, 6_000)], 0, 12_000)
    [alone] = batches(memoryview(raw_batch(records + records, offset=0, base=0)))
    assert unpacked(3, found.payload) == bytes(alone.payload)


def test_times_that_are_too_far_from_each_other() -> None:
    far = [
        batch_of([RawRecord(value=b"x", timestamp=time)], 0, 100 + number)
        for number, time in enumerate((-(2**62), 2**62 + 2**61))
    ]
    with pytest.raises(Malformed, match="the batch at offset 101"):
        repacked(far, 100, 102)


def test_times_that_are_further_from_the_first_one_than_64_bits_hold() -> None:
    """Clients subtract and add them modulo 2**64."""
    records = [RawRecord(value=b"x", timestamp=time) for time in (2**62, -(2**63) + 5, 2**63 - 1, -1, 0)]
    found, _ = repacked([batch_of(records)], 101, 104)
    assert found.max_timestamp == 2**63 - 1
    records = records[:2]
    found, _ = repacked([batch_of(records, 0, 100), batch_of(records, 0, 102)], 100, 104)
    assert found.max_timestamp == 2**62
    [alone] = batches(memoryview(raw_batch(records + records, offset=0)))
    assert bytes(found.payload) == bytes(alone.payload)
    found.framed(7, 2, 300)


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
        repacked([batch._replace(payload=damaged)], 101, 102)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"\x10\0\0\0\1\1\0", "record 0 is cut"),
        (b"\x0c\0\0\2\1\1\0", "record 0 does not say"),
        (b"\x0c\0\0\0\1\1\0\0", "more behind its last record"),
        (b"\x0c\0" + b"\xff" * 9 + b"\1" + b"\0" * 9, "more than 64 bits|does not say|is cut"),
    ],
)
def test_records_that_contradict_their_batch_are_named(payload: bytes, said: str) -> None:
    [batch] = batches(memoryview(raw_batch([RawRecord()], offset=100, payload=payload)))
    with pytest.raises(Malformed, match=f"the batch at offset 100: .*({said})"):
        repacked([batch], 100, 101)
