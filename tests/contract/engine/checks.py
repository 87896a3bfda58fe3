"""What every copy engine has to do. Each check gets a case of its own and raises AssertionError."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Sequence

from kafka_replication.copying.engine import Chunk
from kafka_replication.copying.sink import RefusedAt
from kafka_replication.model.errors import GapFound, Refused
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.verification.digests import DIGEST_KIND, Fingerprint, digest_for
from kafka_replication.verification.verify import PartDigest
from tests.conformance.ground import raised
from tests.conformance.sink_case import segments_of
from tests.contract.copy_case import CopyCase
from tests.support.checker import read
from tests.support.raw_produce import produce_raw
from tests.support.scenario import Rec, numbered

Check = Callable[[CopyCase], None]
ODD = [
    Rec(None, b"no key"),
    Rec(b"no value", None),
    Rec(b"", b""),
    Rec(b"headers", b"v", (("a", b"1"), ("a", None), ("", b""), ("ä", b"\xff\0"))),
    Rec(b"\0\xff", b"\0" * 1000),
    Rec(b"old", b"v", (), 1),
]


def assert_tiles(chunks: Sequence[Chunk], wanted: OffsetRange) -> None:
    """The chunks' ranges make up ``wanted``, without hole or overlap, in order."""
    assert chunks[0].range.from_ == wanted.from_
    assert chunks[-1].range.until == wanted.until
    for before, after in itertools.pairwise(chunks):
        assert before.range.until == after.range.from_


def produce_one_by_one(case: CopyCase, count: int) -> None:
    """Each in a batch of its own, which an engine may not divide."""
    for record in numbered(count):
        case.produce(record)


def every_record_arrives_unchanged_and_in_order(case: CopyCase) -> None:
    case.produce(*ODD, *numbered(300), *ODD)
    case.copy(OffsetRange(0, case.source_end()))
    assert case.copied() == case.produced()
    assert len(case.copied()) == 300 + 2 * len(ODD)


def chunks_end_at_the_number_of_records_asked_for(case: CopyCase) -> None:
    produce_one_by_one(case, 25)
    chunks = case.copy(OffsetRange(0, 25), most_records=10)
    assert [chunk.count for chunk in chunks] == [10, 10, 5]
    assert_tiles(chunks, OffsetRange(0, 25))
    assert case.copied() == case.produced()


def a_chunk_of_one_record_holds_one_record(case: CopyCase) -> None:
    """How a refused record is named."""
    produce_one_by_one(case, 4)
    assert [chunk.count for chunk in case.copy(OffsetRange(0, 4), most_records=1)] == [1, 1, 1, 1]


def offsets_without_visible_records_belong_to_the_range(case: CopyCase) -> None:
    case.source.transaction(case.topic, numbered(5), abort=True)
    case.source.transaction(case.topic, numbered(5, 5))
    case.source.transaction(case.topic, numbered(5, 10), abort=True)
    end = case.source_end()
    assert end == 18
    chunks = case.copy(OffsetRange(0, end), most_records=2)
    assert_tiles(chunks, OffsetRange(0, end))
    assert sum(chunk.count for chunk in chunks) == 5
    assert case.copied() == case.produced()


def a_range_of_markers_alone_is_a_chunk_without_records(case: CopyCase) -> None:
    case.source.transaction(case.topic, numbered(5), abort=True)
    chunks = case.copy(OffsetRange(0, case.source_end()))
    assert [(chunk.range, chunk.count, segments_of(chunk.placement)) for chunk in chunks] == [
        (OffsetRange(0, 6), 0, ())
    ]


def nothing_outside_the_range_is_copied(case: CopyCase) -> None:
    case.produce(*numbered(30))
    assert_tiles(case.copy(OffsetRange(5, 20), most_records=4), OffsetRange(5, 20))
    assert case.copied() == case.produced()[5:20]


def ranges_are_copied_in_any_order(case: CopyCase) -> None:
    case.produce(*numbered(30))
    for range_ in (OffsetRange(20, 30), OffsetRange(0, 10)):
        case.copy(range_)
    assert case.copied() == [*case.produced()[20:], *case.produced()[:10]]


def the_digest_is_what_reading_back_finds(case: CopyCase) -> None:
    case.produce(*ODD, *numbered(10))
    chunks = case.copy(OffsetRange(0, case.source_end()), most_records=4)
    with case.sink.verifier(case.key) as reader:
        for chunk in chunks:
            digest = digest_for(case.copied_by(case.engine, chunk))
            [part] = [segment.part for segment in segments_of(chunk.placement)]
            assert reader.read(part, digest()) == PartDigest(chunk.count, chunk.digest)
            assert digest().hexdigest() != chunk.digest
    assert len({chunk.digest for chunk in chunks}) == len(chunks)


def a_record_digest_is_that_of_the_records(case: CopyCase) -> None:
    if case.engine.digest_kind != DIGEST_KIND:
        return  # of stored batches, which nobody else reads
    case.produce(*ODD, *numbered(10))
    [chunk] = case.copy(OffsetRange(0, case.source_end()))
    expected = Fingerprint()
    for record in case.produced():
        expected.add(record.timestamp, record.key, record.value, record.headers)
    assert (chunk.digest, chunk.count, chunk.bytes) == (expected.hexdigest(), expected.count, expected.bytes)
    assert [segment.digest for segment in segments_of(chunk.placement)] == [chunk.digest]


def bytes_are_those_of_keys_values_and_headers(case: CopyCase) -> None:
    """Whatever the codec: so the figures of a report mean the same with each engine."""
    values = [Rec(b"key %d" % number, b"value %d " % number * 40, (("name", b"content"),)) for number in range(100)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        case.source.produce(case.topic, values, compression_type=codec, linger_ms=500)
    chunks = case.copy(OffsetRange(0, case.source_end()))
    expected = 5 * sum(len(record.key or b"") + len(record.value or b"") + len("namecontent") for record in values)
    assert abs(sum(chunk.bytes for chunk in chunks) - expected) < expected / 50


def a_chunk_says_which_source_offsets_its_records_have(case: CopyCase) -> None:
    """So that a committed offset can be translated after the source has compacted what it had."""
    for number in range(0, 60, 3):
        case.source.transaction(case.topic, numbered(3, number), abort=number % 4 == 0)
    case.produce(*numbered(20))
    chunks = case.copy(OffsetRange(1, case.source_end() - 3), most_records=7)
    places = dict(zip([chunk.range for chunk in chunks], chunks, strict=True))
    source = [offset for offset, _ in read(case.source.bootstrap, case.topic, 0)]
    for range_, chunk in places.items():
        its = [offset for offset in source if offset in range_]
        for asked in range(range_.from_, range_.until + 1):
            before = bisect_left(its, asked)
            if chunk.offset_map is None:
                assert len(its) in (0, range_.span)
            else:
                assert chunk.offset_map.before(range_.from_, asked) == (before, before)
    assert any(chunk.offset_map for chunk in chunks)


def the_leader_epoch_of_the_last_offset_is_known(case: CopyCase) -> None:
    """It makes a truncated source be noticed when the next range is read."""
    case.produce(*numbered(5))
    case.source.transaction(case.topic, numbered(5, 5))
    chunks = [*case.copy(OffsetRange(0, 5)), *case.copy(OffsetRange(5, case.source_end()))]
    assert [chunk.leader_epoch for chunk in chunks] == [0, 0]


def offsets_that_are_gone_are_a_gap(case: CopyCase) -> None:
    case.produce(*numbered(30))
    case.source.delete_before(case.topic, 0, 10)
    raised(GapFound, lambda: case.copy(OffsetRange(5, 30)))
    assert case.copied() == []


def a_source_that_was_re_created_is_refused(case: CopyCase) -> None:
    ids = case.ids
    with case.engine.reader(case.task(5)) as reader:
        reader.check_ids(ids)
        case.source.delete(case.topic)
        raised(Refused, lambda: reader.check_ids(ids))
        case.source.create(case.topic)
        raised(Refused, lambda: reader.check_ids(ids))


def a_record_that_cannot_be_copied_unchanged_is_refused_by_name(case: CopyCase) -> None:
    """An engine that can copy it does; none changes it."""
    case.produce(*numbered(3))
    produce_raw(case.source.bootstrap, case.topic, 0, b"k", b"v", [(b"\xff", b"1")], timestamp=1_700_000_000_000)
    refused: list[int | None] = []
    try:
        case.copy(OffsetRange(0, 4))
    except RefusedAt as error:
        refused.append(error.offset)
    assert (refused, len(case.copied())) in (([3], 0), ([], 4))


CHECKS: list[Check] = [
    every_record_arrives_unchanged_and_in_order,
    chunks_end_at_the_number_of_records_asked_for,
    a_chunk_of_one_record_holds_one_record,
    offsets_without_visible_records_belong_to_the_range,
    a_range_of_markers_alone_is_a_chunk_without_records,
    nothing_outside_the_range_is_copied,
    ranges_are_copied_in_any_order,
    the_digest_is_what_reading_back_finds,
    a_record_digest_is_that_of_the_records,
    bytes_are_those_of_keys_values_and_headers,
    a_chunk_says_which_source_offsets_its_records_have,
    the_leader_epoch_of_the_last_offset_is_known,
    offsets_that_are_gone_are_a_gap,
    a_source_that_was_re_created_is_refused,
    a_record_that_cannot_be_copied_unchanged_is_refused_by_name,
]
