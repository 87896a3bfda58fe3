"""The judge of `make drill`: what it takes for missed, repeated, out of order, and passed by a group."""

from __future__ import annotations

import pytest

from stack import drill_judge as judge
from stack.drill_judge import Side
from stack.drill_work import PARTITIONS, At, Consumed, Notes, Numbered, from_value, to_value

AT = PARTITIONS[0]


def records(*numbers: int, at: At = AT) -> list[Numbered]:
    return [Numbered(at, number) for number in numbers]


def notes(acknowledged: int = 10, session: int = 1) -> Notes:
    made = Notes()
    made.acknowledged |= set(records(*range(acknowledged)))
    made.session_of |= dict.fromkeys(records(*range(acknowledged)), session)
    return made


def counted(*numbers: int, of: Notes, monkeypatch: pytest.MonkeyPatch) -> Side:
    monkeypatch.setattr(judge, "read", lambda _: {AT: list(enumerate(records(*numbers)))})
    return judge.count("", of)


def test_each_acknowledged_number_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not counted(*range(10), of=notes(), monkeypatch=monkeypatch).problems("a")
    side = counted(0, 2, 1, 3, 3, 4, 6, 7, 8, 9, 77, of=notes(), monkeypatch=monkeypatch)
    assert (side.missed, side.repeated, side.foreign) == (records(5), records(3), records(77))
    assert side.unordered == records(1)
    two = notes()
    two.session_of |= dict.fromkeys(records(0, 1, 2), 2)  # another producer: its order says nothing about the first
    assert not counted(*range(3, 10), 0, 1, 2, of=two, monkeypatch=monkeypatch).unordered
    two.aborted |= set(records(4))
    assert counted(*range(10), of=two, monkeypatch=monkeypatch).foreign == records(4), "an aborted record is there"


def test_what_a_group_got_again_and_what_its_place_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = notes()
    phases = {0: (0, 1, 2), 1: (2, 3, 3, 5)}
    made.consumed["g"] = [Consumed(phase, "a", 0, one) for phase, all_ in phases.items() for one in records(*all_)]
    assert judge.repeated_in(made, "g", 0).total() == 0
    assert judge.repeated_in(made, "g", 1) == {records(2)[0]: 1, records(3)[0]: 1}
    side = counted(*range(10), of=made, monkeypatch=monkeypatch)
    assert judge.skipped(made, "g", side, {AT: 7}) == records(4, 6)
    assert judge.skipped(made, "g", side, {AT: 4}) == []


def test_values_and_texts() -> None:
    assert from_value(to_value(records(12)[0])) == records(12)[0]
    assert judge.shown(records(1, 2, 3, 7)) == f"{AT.topic}-{AT.partition}: 1..3, 7"
