"""The digest: no two different lists of records share one, however they are cut, batched or spread over fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.verification.digests import DIGEST_KIND, Fingerprint

Header = tuple[str, bytes | None]
Record = tuple[int, bytes | None, bytes | None, Sequence[Header] | None]

# Few and short values: collisions of a sloppy format come from bytes that move between neighbouring fields.
BYTES = (
    st.none()
    | st.binary(max_size=3)
    | st.sampled_from([b"", b"a", b"ab", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00"])
)
HEADERS = st.lists(st.tuples(st.text("ab\u00e9\x00", max_size=2), BYTES), max_size=3)
RECORDS = st.lists(st.tuples(st.integers(-1, 2) | st.integers(-1, 2**62), BYTES, BYTES, HEADERS), max_size=4)


def fed(records: Iterable[Record]) -> Fingerprint:
    made = Fingerprint()
    for timestamp, key, value, headers in records:
        made.add(timestamp, key, value, headers)
    return made


def plain_bytes(records: Iterable[Record]) -> int:
    """What the records hold, counted the slow way."""
    return sum(
        len(key or b"")
        + len(value or b"")
        + sum(len(name.encode()) + len(content or b"") for name, content in headers or ())
        for _, key, value, headers in records
    )


@given(RECORDS, RECORDS)
def test_different_records_have_different_digests_and_equal_ones_the_same(
    one: list[Record], other: list[Record]
) -> None:
    assert (fed(one).hexdigest() == fed(other).hexdigest()) == (one == other)


class Tape:
    """Stands in for the hash and keeps every byte that is fed to it."""

    def __init__(self) -> None:
        self.bytes = b""

    def update(self, data: bytes) -> None:
        self.bytes += data


def tape(records: Iterable[Record]) -> bytes:
    kept = Tape()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xxhash, "xxh3_128", lambda: kept)
        made = Fingerprint()
    for record in records:
        made.add(*record)
    return kept.bytes


def read_back(data: bytes) -> list[Record]:
    """Parse what was fed; that this is possible at all is what makes the feed unambiguous."""
    at = 0

    def number(size: int) -> int:
        nonlocal at
        at += size
        return int.from_bytes(data[at - size : at], "little", signed=True)

    def content(size: int) -> bytes | None:
        nonlocal at
        if size < 0:
            return None
        at += size
        return data[at - size : at]

    records: list[Record] = []
    while at < len(data):
        timestamp, key_size, value_size, count = number(8), number(4), number(4), number(4)
        key, value = content(key_size), content(value_size)
        headers: list[Header] = []
        for _ in range(count):
            name_size, size = number(4), number(4)
            headers.append(((content(name_size) or b"").decode(), content(size)))
        records.append((timestamp, key, value, headers))
    return records


@given(RECORDS)
def test_what_is_fed_can_be_read_back_so_no_two_lists_feed_the_same_bytes(records: list[Record]) -> None:
    assert read_back(tape(records)) == records


A_RECORD: Record = (7, b"k", b"v", [("h", b"x")])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([(7, b"ab", b"c", [])], [(7, b"a", b"bc", [])]),
        ([(7, b"a", b"", [])], [(7, b"", b"a", [])]),
        ([(7, None, b"v", [])], [(7, b"", b"v", [])]),
        ([(7, b"k", None, [])], [(7, b"k", b"", [])]),
        ([(7, b"k", b"v", [("a", b"b")])], [(7, b"k", b"v", [("ab", b"")])]),
        ([(7, b"k", b"v", [("a", None)])], [(7, b"k", b"v", [("a", b"")])]),
        ([(7, b"k", b"v", [("a", b"1"), ("b", b"2")])], [(7, b"k", b"v", [("b", b"2"), ("a", b"1")])]),
        ([(7, b"k", b"va", [])], [(7, b"k", b"v", [("a", b"")])]),
        ([(7, b"k", b"v", [])], [(8, b"k", b"v", [])]),
        ([(-1, b"k", b"v", [])], [(0, b"k", b"v", [])]),
        ([(7, b"k", b"v", [("h", b"")]), (7, None, None, [])], [(7, b"k", b"v", []), (7, None, None, [("h", b"")])]),
        ([A_RECORD], [A_RECORD, A_RECORD]),
        ([A_RECORD, (8, None, None, [])], [(8, None, None, []), A_RECORD]),
        ([], [(0, None, None, [])]),
        ([(7, b"k", b"v", []), (7, b"k", b"w", [])], [(7, b"k", b"v" + tape([(7, b"k", b"w", [])]), [])]),
    ],
    ids=[
        "key to value",
        "empty key or value",
        "null key",
        "null value",
        "header name to value",
        "null header",
        "header order",
        "value to header",
        "timestamp",
        "no timestamp",
        "header to the next record",
        "doubled",
        "order",
        "an empty record",
        "a record inside a value",
    ],
)
def test_records_that_look_alike_differ(one: list[Record], other: list[Record]) -> None:
    assert fed(one).hexdigest() != fed(other).hexdigest()


@given(RECORDS)
def test_count_and_bytes_are_the_records(records: list[Record]) -> None:
    made = fed(records)
    assert (made.count, made.bytes) == (len(records), plain_bytes(records))


@given(st.lists(RECORDS, max_size=4))
def test_the_digest_does_not_depend_on_how_records_are_batched(batches: list[list[Record]]) -> None:
    made = Fingerprint()
    for batch in batches:
        for record in batch:
            made.add(*record)
        made.hexdigest()  # asking in between changes nothing
    assert made.hexdigest() == fed([record for batch in batches for record in batch]).hexdigest()


def test_no_headers_and_an_empty_list_of_headers_are_the_same_record() -> None:
    assert fed([(7, b"k", b"v", None)]).hexdigest() == fed([(7, b"k", b"v", [])]).hexdigest()


def test_the_digest_kind_is_fixed_by_what_it_gives() -> None:
    """Whoever changes what is fed must give `DIGEST_KIND` a new name, or old receipts stop verifying."""
    made = fed([(1_700_000_000_000, b"k", b"v", [("h", b"1"), ("n", None)]), (-1, None, None, None)])
    assert (DIGEST_KIND, made.hexdigest(), made.count, made.bytes) == (
        "xxh3_128/1",
        "e562a515e1682feb2fc6f434f304eb61",
        2,
        5,
    )
    assert Fingerprint().hexdigest() == "99aa06d3014798d86001c324468d497f"
