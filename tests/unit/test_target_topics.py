"""Sets of target topics: the same answers as for sets that can be written down."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.watermarks.values import Scope, TargetTopics

UNIVERSE = frozenset("abcde")
SETS = st.builds(TargetTopics, st.frozensets(st.sampled_from("abc")), st.booleans())


def listed(topics: TargetTopics) -> frozenset[str]:
    return UNIVERSE - topics.names if topics.all_but else topics.names


@given(SETS, SETS)
def test_they_are_sets(one: TargetTopics, other: TargetTopics) -> None:
    assert listed(one.minus(other)) == listed(one) - listed(other)
    assert listed(one.both(other)) == listed(one) & listed(other)
    assert one.overlaps(other) == bool(listed(one) & listed(other))
    assert bool(one) == bool(listed(one))
    assert {name for name in UNIVERSE if name in one} == listed(one)


@given(SETS)
def test_the_text_that_is_stored_says_the_same(topics: TargetTopics) -> None:
    assert TargetTopics.decode(topics.encode()) == topics


def test_the_stored_text_never_changes() -> None:
    assert TargetTopics.of(["b", "a"]).encode() == '{"only": ["a", "b"]}'
    assert TargetTopics.ALL.encode() == '{"all_but": []}'


def test_they_print_themselves() -> None:
    assert str(TargetTopics.of(["b", "a"])) == "a, b"
    assert str(TargetTopics.of("abcdefg")) == "a, b, c, d, e and others"
    assert str(TargetTopics.ALL.minus(TargetTopics.of(["x"]))) == "all target topics but x"
    assert (str(TargetTopics.ALL), str(TargetTopics.NONE)) == ("all target topics", "no target topic")


def test_who_waits_no_longer_asks_only_for_the_least() -> None:
    scope = Scope(wants=TargetTopics.ALL, needs=TargetTopics.of("a"), at_least=TargetTopics.NONE)
    assert scope.impatient() == Scope(wants=TargetTopics.ALL, needs=TargetTopics.NONE, at_least=TargetTopics.NONE)
    assert Scope.exactly(TargetTopics.of("a")).impatient() == Scope.exactly(TargetTopics.of("a"))
