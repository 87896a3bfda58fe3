"""A record becomes a row of HBase and comes back byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.copying.sink import Record
from kafka_replication.hbase.client import thrift
from kafka_replication.hbase.rows import Origin, Rows, cells_of, decoded, is_gone, offset_of, row_key
from kafka_replication.hbase.tables import ID, problem_of
from kafka_replication.model.offsets import OffsetRange, TopicPartition

ORIGIN = Origin("orders-rows", 1, TopicPartition("orders", 1), 1)
ROWS = Rows(ORIGIN)
BYTES = st.none() | st.binary(max_size=50)
RECORDS = st.tuples(
    st.integers(0, 2**62),
    st.integers(-1, 2**62),
    BYTES,
    BYTES,
    st.none() | st.lists(st.tuples(st.text(max_size=5), BYTES), min_size=1, max_size=3),
)


def stored(put: Any) -> tuple[bytes, dict[bytes, bytes]]:
    """The row as a scan would return it."""
    return put.row, cells_of(put)


@given(RECORDS)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    row, cells = stored(ROWS.put(record, 7))
    assert decoded(row, cells) == record
    assert ORIGIN.is_of(cells) and not is_gone(cells)


@given(RECORDS, RECORDS)
def test_what_a_later_session_writes_leaves_nothing_of_an_earlier_one(one: Record, other: Record) -> None:
    """Also a removal: each has all columns."""
    before, after = stored(ROWS.put(one, 1))[1], stored(ROWS.put(other, 2))[1]
    assert before.keys() == after.keys() == stored(ROWS.removal(1, 3))[1].keys()


def test_all_cells_have_the_number_of_the_session() -> None:
    for put in (ROWS.put((3, 1, b"k", b"v", None), 7), ROWS.removal(3, 7)):
        assert {cell.timestamp for cell in put.columnValues} == {7}
        assert (put.durability, put.row) == (3, row_key(1, 1, 3)), "acknowledged when it is in the log"


def test_a_removed_row_is_of_its_origin_and_gone() -> None:
    row, cells = stored(ROWS.removal(3, 7))
    assert ORIGIN.is_of(cells) and is_gone(cells)
    with pytest.raises(ValueError, match="column"):
        decoded(row, cells)


@pytest.mark.parametrize(
    "changed",
    [
        {b"offset": b"\0" * 7 + b"\x04"},
        {b"timestamp": b"1"},
        {b"headers": b"{"},
        {b"origin": b"no JSON"},
        {b"origin": b"[]"},
    ],
)
def test_a_row_that_was_changed_so_that_it_is_no_record_is_refused(changed: dict[bytes, bytes]) -> None:
    row, cells = stored(ROWS.put((3, 1, b"k", b"v", None), 7))
    with pytest.raises(ValueError, match=r"column|of another|JSON|Expecting|no origin of ours"):
        decoded(row, {**cells, **changed})


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(0, 2**40)), min_size=2, max_size=9))
def test_rows_are_in_the_order_of_partition_generation_and_offset(places: list[tuple[int, int, int]]) -> None:
    assert sorted(row_key(*place) for place in places) == [row_key(*place) for place in sorted(places)]


def test_what_is_outside_of_our_ranges_is_the_rest_of_the_table() -> None:
    """For every key there can be: ours, those of others, and those of no form of ours."""
    keys = [row_key(p, g, n) for p in range(4) for g in range(3) for n in range(8)]
    keys += [b"\0", b"\0\0\0\1", b"user", b"\xff" * 20]
    ranges = [OffsetRange(1, 3), OffsetRange(5, 6), OffsetRange(2, 3)]
    origins = [Origin("r", 1, TopicPartition("orders", p), p) for p in range(3)]
    inside = {row_key(p, 1, n) for p in range(3) for n in (1, 2, 5)}
    found = [
        key
        for origin in origins
        for begin, end in origin.outside(3, ranges)
        for key in keys
        if begin <= key and (key < end or not end)
    ]
    assert sorted(found) == sorted(set(keys) - inside), "each once"


def test_a_key_of_others_has_no_offset() -> None:
    assert offset_of(row_key(1, 2, 3)) == 3
    with pytest.raises(ValueError, match="no row key"):
        offset_of(b"user")


def table(attributes: dict[bytes, bytes] | None, *families: Any) -> Any:
    return thrift().TTableDescriptor(columns=list(families), attributes=attributes)


def family(name: bytes = b"k", ttl: bytes = b"2147483647") -> Any:
    return thrift().TColumnFamilyDescriptor(name=name, attributes={b"TTL": ttl})


@pytest.mark.parametrize(
    ("there", "what", "remedy"),
    [
        (table({ID: b"1"}, family()), None, ""),
        (table({ID: b"1"}, family(ttl=b"FOREVER")), None, ""),
        (table({ID: b"1"}, family(b"other")), "no family 'k'", "alter 't', NAME => 'k'"),
        (table({ID: b"1"}, family(ttl=b"86400")), "TTL (86400)", "TTL => 'FOREVER'"),
        (table(None, family()), "no kafka-replication.id", "METADATA => {'kafka-replication.id' => '"),
        (table({ID: b"1", b"READONLY": b"true"}, family()), "read only", "READONLY => false"),
    ],
)
def test_a_table_that_would_not_do_is_named_with_the_command(there: Any, what: str | None, remedy: str) -> None:
    problem = problem_of("t", there)
    if what is None:
        assert problem is None
    else:
        assert problem is not None and what in problem.what and remedy in problem.remedy


def test_a_row_belongs_to_its_origin_at_its_own_place_only() -> None:
    row, cells = stored(ROWS.put((3, 1, b"k", b"v", None), 7))
    assert ORIGIN.owns(row, cells)
    for other in (row + b"\0", row_key(1, 2, 3), row_key(0, 1, 3), b"user"):
        assert not ORIGIN.owns(other, cells)
    assert not Origin("another", 1, ORIGIN.source, 1).owns(row, cells)
