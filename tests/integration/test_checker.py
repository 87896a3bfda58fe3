"""The judge itself: each kind of damage is seen, and called by its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.checker import Record, compare

RECORDS = [Record(b"k%d" % n, b"v%d" % n, (), n + 1) for n in range(5)]


@pytest.mark.parametrize(
    ("target", "wrong"),
    [
        (RECORDS, set()),
        (RECORDS[:-1], {"lost"}),
        ([*RECORDS, RECORDS[2]], {"doubled"}),
        ([RECORDS[1], RECORDS[0], *RECORDS[2:]], {"reordered"}),
        ([replace(RECORDS[0], value=None), *RECORDS[1:]], {"altered"}),
        ([replace(RECORDS[0], timestamp=9), *RECORDS[1:]], {"altered"}),
        ([replace(RECORDS[0], headers=(("h", b""),)), *RECORDS[1:]], {"altered"}),
        ([*RECORDS, Record(None, b"stranger", (), 1)], {"foreign"}),
        ([], {"lost"}),
    ],
)
def test_damage_is_named(target: list[Record], wrong: set[str]) -> None:
    found = compare(RECORDS, target)
    assert {name for name in found.__slots__ if getattr(found, name)} == wrong
    assert found.clean == (not wrong)


def test_equal_records_are_counted() -> None:
    same = [Record(None, b"x", (), 1)] * 3
    assert compare(same, same).clean
    assert len(compare(same, same[:1]).lost) == 2
    assert len(compare(same[:1], same).doubled) == 2
