"""A ledger entry that is not as its version requires is refused and shown, never read as another one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kafka_replication.ledger.codec import KINDS
from kafka_replication.model.errors import LedgerUnreadable
from tests.golden.ledger_entries import FILES, GOLDEN, decode, golden, kind_of
from tests.support.json_changes import setting, without

WRITTEN = {kind: entry.FORMAT for kind, entry in KINDS.items()}
LAST_FILES = {
    "position": "position",
    "verified": "verified",
    "gap": "gap-retention",
    "start": "start",
    "deleted": "deleted",
    "removed": "removed",
    "handled": "handled-discarded",
    "receipt": "receipt",
}


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"7", b"null", b"[]", b'"x"', b"{}", b'{"format":1}', b'{"type":"position"}', b"\xff\xfe", b"\x00"],
)
def test_what_is_no_entry_is_refused_and_shown(kind: str, data: bytes) -> None:
    with pytest.raises(LedgerUnreadable) as caught:
        decode(kind, data)
    assert caught.value.what == f"a ledger entry is not readable: {data!r}"
    assert "only this product may write the ledger topics" in caught.value.remedy


@pytest.mark.parametrize(
    ("kind", "found"), [("position", "verified"), ("verified", "receipt"), ("receipt", "gap"), ("gap", "position")]
)
def test_an_entry_of_another_type_is_refused(kind: str, found: str) -> None:
    with pytest.raises(LedgerUnreadable, match=f"a ledger entry is a '{found}' where a {kind} belongs"):
        decode(kind, golden(WRITTEN[found], LAST_FILES[found]))


FAILED = dict.fromkeys(("kind", "reason", "error", "key_digest", "digest"), "") | {"offset": 7, "size": 3}
PART = {"partition": 0, "offsets": [[1, 3]], "count": 2, "digest": "d"}
SPREAD: dict[str, Any] = {
    "kind": "kafka-partitions",
    "by": {"name": "by_key", "hash": "", "partitions": 3},
    "parts": [PART],
}
WRONG = {
    "missing field": ("position", without("next_offset")),
    # A default in its place would read a broken entry as another position: no foreign writer would be noticed.
    "missing field with a default": ("position", without("target_end")),
    "missing epoch": ("position", without("leader_epoch")),
    "text for a number": ("position", setting("next_offset", to="12")),
    "null for a number": ("position", setting("next_offset", to=None)),
    "true for a number": ("position", setting("generation", to=True)),
    "a fraction": ("position", setting("start", to=1.5)),
    "below zero": ("position", setting("start", to=-1)),
    "text for an epoch": ("position", setting("leader_epoch", to="4")),
    "coverage backwards": ("position", setting("coverage", to=[[12, 5]])),
    "coverage of one number": ("position", setting("coverage", to=[[12]])),
    "coverage of text": ("position", setting("coverage", to=["12"])),
    "coverage that is none": ("verified", setting("coverage", to=None)),
    "no level": ("verified", without("level")),
    "a number for a run": ("verified", setting("run_id", to=7)),
    "ids that are text": ("position", setting("ids", to="abc")),
    "ids without one": ("position", without("ids", "target_topic")),
    "ids with one more": ("position", setting("ids", "target_cluster", to="x")),
    "an id that is null": ("receipt", setting("ids", "source_topic", to=None)),
    "range backwards": ("receipt", setting("range", to=[12, 5])),
    "range of three": ("receipt", setting("range", to=[1, 2, 3])),
    "range of text": ("receipt", setting("range", to="12")),
    "range of fractions": ("receipt", setting("range", to=[1.5, 2.5])),
    "an empty gap": ("gap", setting("range", to=[12, 12])),
    "a gap of another kind": ("gap", setting("kind", to="whim")),
    "a gap without a reason": ("gap", without("reason")),
    "a gap that nobody approved": ("gap", setting("approved_by", to=None)),
    "segments that are none": ("receipt", setting("placement", "segments", to=None)),
    "segment without digest": ("receipt", without("placement", "segments", 0, "digest")),
    "segment with text": ("receipt", setting("placement", "segments", 0, "last", to="95")),
    "segment that is a list": ("receipt", setting("placement", "segments", 0, to=[1, 2])),
    "segments with one more field": ("receipt", setting("placement", "topic", to="x")),
    "a part without offsets": ("receipt", setting("placement", to=SPREAD | {"parts": [PART | {"offsets": []}]})),
    "a part whose ranges overlap": (
        "receipt",
        setting("placement", to=SPREAD | {"parts": [PART | {"offsets": [[1, 3], [2, 4]]}]}),
    ),
    "parts that nobody chose": ("receipt", setting("placement", to=SPREAD | {"by": None})),
    "ends of other partitions": ("position", setting("spread", to={"by": SPREAD["by"], "ends": [1, 2]})),
    "a placement without kind": ("receipt", without("placement", "kind")),
    "a placement that is text": ("receipt", setting("placement", to="kafka-segments")),
    "a placement whose kind is a number": ("receipt", setting("placement", "kind", to=1)),
    "quarantined below zero": ("receipt", setting("quarantined", to=-1)),
    "skipped that is text": ("receipt", setting("skipped", to="0")),
    "a transform without hash": ("receipt", setting("transform", to={"name": "x"})),
    "a format that is no version": ("receipt", setting("format", to=0)),
    "a failed record without reason": ("receipt", setting("failures", to=[{"offset": 7}])),
    "a failed record in no place": ("receipt", setting("failures", to=[{**FAILED, "place": ["t", 1]}])),
    "a decision that decides nothing": ("handled", setting("quarantined", to=[])),
    "a decision of another kind": ("handled", setting("state", to="forgotten")),
    "a level that does not exist": ("verified", setting("level", to="thorough")),
}


@pytest.mark.parametrize(("kind", "change"), WRONG.values(), ids=WRONG)
def test_a_malformed_entry_is_refused_and_shown(kind: str, change: Callable[[Any], None]) -> None:
    value = json.loads(golden(WRITTEN[kind], LAST_FILES[kind]))
    change(value)
    with pytest.raises(LedgerUnreadable, match=r"^a ledger entry is malformed \(.+\): b'\{\"") as caught:
        decode(kind, value)
    assert "only this product may write the ledger topics" in caught.value.remedy


# Added to a version later. Without `spread`, no target partition has records of ours, and those found are foreign.
OPTIONAL = {
    "position": {
        "adopted",
        "adopted_places",
        "quarantined",
        "skipped",
        "spread",
        "transform",
        "delivery",
        "denied",
        "followed_by",
        "sealed",
    },
    "verified": {"delivery", "lost_in_delivery", "duplicates", "judged_until", "superseded"},
    "removed": {"lost_above_start", "target_starts"},
    "handled": {"given_back", "number"},
    "receipt": {
        "failures",
        "offset_map",
        "sources",
        "delivery",
        "after",
        "lost_in_delivery",
        "duplicates",
        "promise",
        "superseded",
    },
}


@pytest.mark.parametrize(("version", "name"), FILES)
def test_every_field_of_a_version_is_required(version: int, name: str) -> None:
    """A default in its place could read a broken entry as another one."""
    content = json.loads(golden(version, name))
    optional = OPTIONAL.get(kind_of(name), set())
    for field in content.keys() - GOLDEN[version][name].extra.keys() - optional:
        with pytest.raises(LedgerUnreadable):
            decode(kind_of(name), {other: value for other, value in content.items() if other != field})
