"""Texts of servers and libraries: what may be told of them, and that nothing else is."""

from __future__ import annotations

import pytest

from kafka_replication.model.harmless import field, harmless

MARK = "m4rk-of-bob@example.org"
HBASE = "org.apache.hadoop.hbase"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MARK, ""),
        (f"failed to parse field [a.b_c] of type [date] in document with id '{MARK}'", "a.b_c] of type [date]"),
        (f"failed to parse field [{MARK}] of type [long]", "failed to parse field [...] of type [long]"),
        (f"{MARK}: failed to parse field [n] of type [long]", ""),
        (f"object mapping for [n] tried to parse field [{MARK}] as object", "object mapping for [n]"),
        ("mapper [n] cannot be changed from type [long] to [text]", "mapper [n] cannot be changed from type [long] to"),
        (f"mapping set to strict, dynamic introduction of [n] within [{MARK}] is not allowed", "introduction of [n]"),
        (f'Document contains at least one immense term in field="n" ({MARK}): [77, 52]', "immense term in field"),
        (f"failed to parse: {MARK}", ""),
        ("index [orders] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded, index has a block];", "disk usage"),
        (f"no permissions for [indices:data/write/bulk[s]] and User [name={MARK}]", "indices:data/write/bulk[s]]"),
        (f"Failed 1 action: {HBASE}.DoNotRetryIOException: Cell[{MARK}/k:value/1/Put/vlen=9]", "DoNotRetryIOException"),
        (f"Cell[{MARK}/k:value] with size 30,017 exceeds limit of 20000 bytes", "exceeds limit of 20000"),
        (f"{HBASE}.NotServingRegionException: {MARK} is not online on h,16020", "NotServingRegionException"),
        (f"{HBASE}.AccessDeniedException: Insufficient permissions (user=x, action=WRITE) {MARK}", "user=x"),
    ],
)
def test_only_what_is_known_to_be_harmless_is_told(text: str, told: str) -> None:
    assert told in harmless(text) and bool(told) == bool(harmless(text)) and MARK not in harmless(text)


@pytest.mark.parametrize("name", ["bob@example.org", "4711", "c1234", "a b", "'x'", "", "x" * 101])
def test_a_name_of_a_field_that_may_be_data_is_not_told(name: str) -> None:
    assert (
        field(name) == "[...]"
        and field("address2.lines_1") == "[address2.lines_1]"
        and field("@timestamp") == "[@timestamp]"
    )
