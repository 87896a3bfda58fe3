"""What an index would refuse, told from its mapping; a node without room, told from its disk."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_replication.opensearch.foresight import DISK, conflict, is_full
from tests.support.mapping_cases import CONFLICTING, FITTING, MAPPING

MARK = "m4rk of bob"


@pytest.mark.parametrize("document", [*FITTING, {"at": "no date, but the format is not known here"}])
def test_what_fits_is_no_conflict(document: dict[str, Any]) -> None:
    assert conflict(document, MAPPING) is None


@pytest.mark.parametrize(("document", "named"), CONFLICTING)
def test_the_first_conflict_is_named(document: dict[str, Any], named: str) -> None:
    assert named in (conflict(document, MAPPING) or "")


@pytest.mark.parametrize("document", [{"n": MARK}, {"n": {MARK: 1}}, {"strict": {MARK: 1}}, {"name": {MARK: 1}}])
def test_no_conflict_shows_a_value_or_a_name_that_may_be_one(document: dict[str, Any]) -> None:
    assert MARK not in (conflict(document, MAPPING) or MARK)


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
