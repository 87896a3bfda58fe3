"""What an index would refuse, told from its mapping; a node without room, told from its disk."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_replication.opensearch.foresight import DISK, conflict, is_full

MAPPING: dict[str, Any] = {
    "properties": {
        "n": {"type": "long"},
        "ok": {"type": "boolean"},
        "at": {"type": "date"},
        "name": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
        "lenient": {"type": "integer", "ignore_malformed": True},
        "customer": {"properties": {"age": {"type": "integer"}}},
        "strict": {"dynamic": "strict", "properties": {"known": {"type": "keyword"}}},
        "lines": {"type": "nested", "properties": {"amount": {"type": "double"}}},
    }
}


@pytest.mark.parametrize(
    "document",
    [
        {"n": 1, "ok": True, "at": "2024-01-01", "name": "a", "customer": {"age": 3}},
        {"n": "12", "ok": "false", "name": 3, "customer": None},
        {"n": None, "n2": "new field", "lenient": "many"},
        {"n": [1, 2, "3"], "lines": [{"amount": 1.5}, {"amount": "2"}]},
        {"strict": {"known": "x"}, "at": "no date, but the format is not known here"},
        {"n": ""},
    ],
)
def test_what_fits_is_no_conflict(document: dict[str, Any]) -> None:
    assert conflict(document, MAPPING) is None


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"n": "many"}, "field n is of type long"),
        ({"n": True}, "field n is of type long"),
        ({"n": {"deep": 1}}, "field n is of type long"),
        ({"n": [1, "many"]}, "field n is of type long"),
        ({"ok": "yes"}, "field ok is of type boolean"),
        ({"name": {"first": "a"}}, "field name is of type text"),
        ({"customer": "Ann"}, "field customer is of type object"),
        ({"customer": {"age": "old"}}, "field customer.age is of type integer"),
        ({"lines": [{"amount": 1}, {"amount": "much"}]}, "field lines.amount is of type double"),
        ({"strict": {"other": 1}}, "no field strict.other"),
    ],
)
def test_the_first_conflict_is_named(document: dict[str, Any], named: str) -> None:
    assert named in (conflict(document, MAPPING) or "")


def test_an_index_that_ignores_malformed_values_refuses_no_number() -> None:
    assert conflict({"n": "many"}, MAPPING, lenient=True) is None
    assert conflict({"name": {"first": "a"}}, MAPPING, lenient=True)


@pytest.mark.parametrize(
    ("low", "full"),
    [("85%", True), ("95%", False), ("0.85", True), ("0.95", False), ("20gb", True), ("5gb", False), ("11000mb", True)],
)
def test_a_node_is_full_below_the_low_watermark(low: str, full: bool) -> None:
    node = {"disk.avail": str(10 << 30), "disk.total": str(100 << 30)}
    assert is_full(node, {f"{DISK}.watermark.low": low}) is full
    assert not is_full(node, {f"{DISK}.watermark.low": low, f"{DISK}.threshold_enabled": "false"})
