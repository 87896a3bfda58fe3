"""The match of what was sent with what is seen, against one that compares each record with all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.verification.matching import Difference, Kind, Seen, Sent, attribute, join_moved, match

FIRST = 1000  # where the copy lies on the target
LETTERS = st.text("abcdefgh.", max_size=12)
ALIKE = st.text("abc.", max_size=14)
Record = TypeVar("Record", Sent, Seen)
Numbered = list[tuple[int, Record]]


def sent(text: str) -> list[Sent]:
    """A record a letter; equal letters are equal records. A dot is an offset without a record."""
    offsets = [offset for offset, letter in enumerate(text) if letter != "."]
    return [Sent(offset, text[offset].encode(), FIRST + number) for number, offset in enumerate(offsets)]


def seen(text: str) -> list[Seen]:
    return [Seen(FIRST + index, letter.encode()) for index, letter in enumerate(text) if letter != "."]


def differences(source: str, target: str) -> list[Difference]:
    return match(iter(sent(source)), iter(seen(target)), ordered=True).differences()


def naive(
    source: Sequence[Sent], target: Sequence[Seen], *, ordered: bool
) -> tuple[Numbered[Sent], Numbered[Seen], list[tuple[int, int]]]:
    """The numbered records of both sides that have no pair, and the numbers of those that have."""
    lost, extra = list(enumerate(source)), list(enumerate(target))
    if not ordered:
        beside = {n for n, (one, other) in enumerate(zip(source, target, strict=False)) if one.digest == other.digest}
        lost = [numbered for numbered in lost if numbered[0] not in beside]
        extra = [numbered for numbered in extra if numbered[0] not in beside]
    pairs = []
    for one in list(lost):
        for other in list(extra):
            if one[1].digest == other[1].digest:
                lost.remove(one)
                extra.remove(other)
                pairs.append((one[0], other[0]))
                break
    return lost, extra, pairs


def longest_rising(numbers: Sequence[int]) -> int:
    longest: list[int] = []
    for index, number in enumerate(numbers):
        longest.append(1 + max((longest[before] for before in range(index) if numbers[before] < number), default=0))
    return max(longest, default=0)


@given(ALIKE, ALIKE, st.booleans())
def test_it_finds_what_comparing_each_record_with_all_others_finds(source: str, target: str, ordered: bool) -> None:
    lost, extra, pairs = naive(sent(source), seen(target), ordered=ordered)
    matched = match(iter(sent(source)), iter(seen(target)), ordered=ordered)
    assert matched.lost == [record for _, record in lost]
    assert matched.extra == [record for _, record in extra]
    moved = [(sent(source).index(one), seen(target).index(other)) for one, other in matched.moved]
    kept = [other for one, other in pairs if (one, other) not in moved]
    assert moved == [pair for pair in pairs if pair in moved]
    assert not moved or ordered
    if ordered:
        assert kept == sorted(kept), "what was not moved is in one order"
        assert len(kept) == longest_rising([other for _, other in pairs]), "no fewer pairs could be moved"


@given(ALIKE, ALIKE)
def test_in_whatever_order_as_many_records_of_each_content_are_left_over(source: str, target: str) -> None:
    contents = [
        (Counter(one.digest for one in matched.lost), Counter(one.digest for one in matched.extra))
        for matched in (match(sent(source), seen(target), ordered=ordered) for ordered in (True, False))
    ]
    here, there = Counter(one.digest for one in sent(source)), Counter(one.digest for one in seen(target))
    assert contents == [(here - there, there - here)] * 2


@given(ALIKE, ALIKE)
def test_a_record_beyond_what_was_sent_comes_from_the_first_of_its_content(extra: str, source: str) -> None:
    origins, foreign = attribute(iter(seen(extra)), iter(sent(source)))
    by_content = {record.digest: record.offset for record in reversed(sent(source))}
    assert Counter(origins) == Counter(by_content[one.digest] for one in seen(extra) if one.digest in by_content)
    assert foreign == [one for one in seen(extra) if one.digest not in by_content]


def test_the_source_is_read_until_all_origins_are_found() -> None:
    source = iter(sent("abcde"))
    assert attribute(seen("cbb"), source) == ([1, 1, 2], [])
    assert next(source).offset == 3
    assert attribute([], source) == ([], [])
    assert next(source).offset == 4


KINDS = [Kind.MISSING, Kind.EXTRA, Kind.ALTERED]


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([b"a", b"b", b"c"])), max_size=12))
def test_a_record_missing_here_and_extra_there_is_joined_to_one_that_moved(kinds: list[tuple[Kind, bytes]]) -> None:
    apart = [Difference(kind, number, 100 + number, digest) for number, (kind, digest) in enumerate(kinds)]
    joined: list[Difference | None] = list(apart)
    for number, extra in enumerate(apart):
        for other, missing in enumerate(joined):
            if missing and (extra.kind, missing.kind) == (Kind.EXTRA, Kind.MISSING) and extra.digest == missing.digest:
                joined[number], joined[other] = extra._replace(kind=Kind.MOVED, source=missing.source), None
                break
    assert join_moved(apart) == [difference for difference in joined if difference]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("", "", []),
        ("abc", "abc", []),
        ("a.b.c", "abc", []),  # markers and aborted records of the source
        ("aaa", "aaa", []),
        ("abc", "..c", ["missing 0 -", "missing 1 -"]),
        ("abc", "a.c", ["missing 1 -"]),
        ("abc", "ab", ["missing 2 -"]),
        ("abc", "", ["missing 0 -", "missing 1 -", "missing 2 -"]),
        ("abc", "abcx", ["extra - 3"]),
        ("abc", "abcb", ["extra - 3"]),
        ("aaa", "aaaa", ["extra - 3"]),
        ("", "x", ["extra - 0"]),
        ("abc", "axc", ["altered 1 1"]),
        ("abc", "xyz", ["altered 0 0", "altered 1 1", "altered 2 2"]),
        ("abcd", "acbd", ["moved 1 2"]),
        ("abcd", "bcda", ["moved 0 3"]),
        ("abcd", "xabcd", ["extra - 0"]),
        ("ab.cd", "axcd", ["altered 1 1"]),
        ("abcdef", "xbdcyf", ["moved 2 3", "altered 0 0", "altered 4 4"]),
        ("abcde", "xde", ["altered 0 0", "missing 1 -", "missing 2 -"]),
        ("ab", "xyb", ["altered 0 0", "extra - 1"]),
    ],
)
def test_what_differs(source: str, target: str, expected: list[str]) -> None:
    """In this order, with offsets counted from each side's start."""
    assert [f"{one.kind} {_at(one.source)} {_at(one.target, FIRST)}" for one in differences(source, target)] == expected


def _at(offset: int | None, first: int = 0) -> str:
    return "-" if offset is None else str(offset - first)


@given(LETTERS, LETTERS)
def test_the_differences_account_for_every_record(source: str, target: str) -> None:
    """Taking the extra and altered ones away and adding the missing ones gives the source again."""
    here, there = sent(source), seen(target)
    content = {**{one.offset: one.digest for one in here}, **{one.place: one.digest for one in there}}
    rebuilt, found = Counter(one.digest for one in there), differences(source, target)
    for each in found:
        if each.kind in (Kind.EXTRA, Kind.ALTERED):
            rebuilt[content[each.target or 0]] -= 1
        if each.kind in (Kind.MISSING, Kind.ALTERED):
            rebuilt[content[each.source or 0]] += 1
    assert +rebuilt == Counter(one.digest for one in here)
    assert bool(found) == ([one.digest for one in here] != [one.digest for one in there])


@pytest.mark.parametrize("ordered", [True, False])
def test_nothing_is_stored_where_nothing_differs(ordered: bool) -> None:
    read = {"source": 0, "target": 0}

    def side(name: str, ahead: str) -> Iterator[bytes]:
        for number in range(10_000):
            read[name] += 1
            assert read[name] - read[ahead] <= 1, "one side was read ahead"
            yield b"%d" % number

    source = (Sent(0, digest) for digest in side("source", "target"))
    target = (Seen(0, digest) for digest in side("target", "source"))
    assert match(source, target, ordered=ordered).differences() == []
