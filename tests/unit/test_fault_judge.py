"""What the judge of the fault table wants, by the profile of its session."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.faults.judge import misreported, without_the_engine
from tests.faults.load import Load
from tests.faults.profiles import VARIABLE
from tests.faults.row import Row
from tests.support.checker import Comparison, Record

RECORDS = [(number, Record(None if number == 3 else b"key", b"%d" % number, (), number)) for number in range(14)]


def load() -> Load:
    """As a row makes it that looks at the source once more."""
    return Load("topic", {0: RECORDS}, {0: 14})


def has_no_key(record: Record) -> bool:
    return record.key is None


def offsets(found: dict[int, list[tuple[int, Record]]]) -> list[int]:
    return [offset for offset, _ in found[0]]


def test_each_load_is_judged_by_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offsets(load().wanted) == list(range(14))
    assert not offsets(load().aside)
    monkeypatch.setenv(VARIABLE, "quarantine")
    assert offsets(load().aside) == [0, 7]
    assert offsets(load().wanted) == [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13]


def test_what_the_target_refuses_is_set_aside_where_the_profile_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offsets(replace(load(), refused=has_no_key).wanted) == list(range(14))
    monkeypatch.setenv(VARIABLE, "quarantine")
    refusing = replace(load(), refused=has_no_key)
    assert offsets(refusing.aside) == [0, 3, 7]
    assert 3 not in offsets(refusing.wanted)


def test_a_row_that_is_refused_heals_where_records_are_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("row", lambda trial: None, expected="refused", refused=has_no_key)
    assert row.under(load().profile).expected == "refused"
    monkeypatch.setenv(VARIABLE, "quarantine")
    assert row.under(load().profile).expected == ""
    assert replace(row, refused=None).under(load().profile).expected == "refused"


def told(comparison: Comparison, *, whole: bool = True, **reported: int) -> list[str]:
    return misreported(0, comparison, Counter(reported), whole=whole, ignore=())


def test_what_is_lost_or_doubled_has_to_be_reported_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    [(_, record)] = RECORDS[:1]
    doubled, lost = Comparison(doubled=[record]), Comparison(lost=[record])
    monkeypatch.setenv(VARIABLE, "leader_ack")
    assert not told(doubled, doubled=1) and told(doubled) and told(doubled, doubled=2)
    assert not told(lost, lost=1) and told(lost) and told(lost, lost=2)
    assert not told(doubled, whole=False), "duplicates are counted when the partition is verified"
    assert told(lost, whole=False)
    monkeypatch.setenv(VARIABLE, "at_least_once")
    assert told(lost, lost=1)


def test_the_engine_that_a_profile_is_there_for_has_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_the_engine({"record/1": 3}) == []
    monkeypatch.setenv(VARIABLE, "auto")
    assert without_the_engine({"record/1": 3, "batch/1": 1}) == []
    [problem] = without_the_engine({"record/1": 3})
    assert "the batch engine was to copy" in problem
    assert without_the_engine({})
