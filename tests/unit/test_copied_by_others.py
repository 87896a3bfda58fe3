"""Where a copy by another tool ends, found by content: simulated copies that repeat stretches and leave records out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.ledger.offset_map import MOST_ADOPTED, AdoptedPlaces, AdoptedRun
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.verification.auditing import CopyEnd
from kafka_replication.verification.copied_by_others import Log, Row, find_end

Logged = Mapping[int, tuple[bytes, int]]  # by offset the content and the timestamp


def side(records: Logged, start: int = 0, aborted: frozenset[int] = frozenset()) -> Log:
    until = max(records, default=start - 1) + 1

    def rows(wanted: OffsetRange, *, also: frozenset[int] = frozenset()) -> list[Row]:
        return [
            (offset, content, time, content[:1])
            for offset, (content, time) in records.items()
            if wanted.from_ <= offset < wanted.until and (offset not in aborted or offset in also)
        ]

    def at_time(wanted: int) -> int:
        return next((offset for offset, (_, time) in records.items() if time >= wanted), until)

    return Log(OffsetRange(start, until), rows, at_time, lambda wanted: rows(wanted, also=aborted))


@dataclass(frozen=True)
class Copied:
    """What a tool made of a source: stretches, each from a place that the ones before it have reached, in order."""

    source: Logged
    kept: Sequence[int]  # source offsets that its filter does not drop
    target: Logged
    end: int  # behind the last copied source offset
    once: Counter[tuple[bytes, int]]  # what it copied, without its own doubles
    goes_on: bool  # each stretch begins where the one before it ended, or before

    @classmethod
    def of(cls, source: Logged, dropped: Iterable[bytes], stretches: Iterable[tuple[float, float]]) -> Copied:
        kept = [offset for offset, (content, _) in source.items() if content not in set(dropped)]
        copies, reached, last, goes_on = list[int](), 0, 0, True
        for back, on in stretches:
            first = round(reached * back)
            goes_on &= first <= last
            last = round(first + (len(kept) - first) * on)
            copies += kept[first:last]
            reached = max(reached, last)
        target = {3 + 2 * number: source[offset] for number, offset in enumerate(copies)}
        once = Counter(source[offset] for offset in set(copies))
        return cls(source, kept, target, max(copies, default=-1) + 1, once, goes_on)


@st.composite
def copies(draw: st.DrawFn) -> Copied:
    contents = draw(
        st.lists(st.sampled_from([b"%d" % n for n in range(draw(st.sampled_from((3, 500))))]), min_size=1, max_size=150)
    )
    disorder = draw(st.sampled_from((0, 0, 5, 1000)))
    source = {
        10 + number + number // 7: (
            content,
            1000 + number - draw(st.integers(0, disorder)) if disorder else 1000 + number // 3,
        )
        for number, content in enumerate(contents)
    }
    # Equal records have one timestamp, too: the digest of a record has it.
    source = {offset: (content + b"@%d" % time, time) for offset, (content, time) in source.items()}
    dropped = draw(st.lists(st.sampled_from([content for content, _ in source.values()]), max_size=5))
    stretches = draw(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5))
    return Copied.of(source, dropped, stretches)


@given(copies(), st.integers(6, 40), st.booleans())
def test_going_on_behind_the_end_loses_and_doubles_nothing(copied: Copied, step: int, whole: bool) -> None:
    alone = {content for content, times in Counter(copied.source.values()).items() if times == 1}
    if not alone & set(copied.target.values()):  # perhaps all records of the target are equal
        with suppress(Refused):
            find_end(side(copied.source, 10), side(copied.target), step=step, whole=whole)
        return
    try:
        end = find_end(side(copied.source, 10), side(copied.target), step=step, whole=whole)
    except Refused:
        assert len(alone) < len(set(copied.source.values())), "some are equal"
        return
    there, wanted = Counter(copied.target.values()), Counter(copied.source[offset] for offset in copied.kept)
    ours = Counter(copied.source[offset] for offset in copied.kept if offset >= end.next_offset)
    assert not wanted - (there + ours), "lost"
    assert not (copied.once + ours) - wanted, "copied again"
    if len(alone) == len(copied.source):
        assert end.next_offset == copied.end
        if whole:
            expected = len(copied.target) - len(there)
            gone = sum(min(copied.source) <= offset < copied.end for offset in copied.source.keys() - set(copied.kept))
            assert (end.compared, end.doubles) == (len(copied.target), expected)
            assert end.missing <= gone, "what the filter dropped"
    if whole or copied.goes_on:
        check_places(copied, end)


def check_places(copied: Copied, end: CopyEnd) -> None:
    """A group whose committed offset lies in what was compared reads all that it has not read, and little again."""
    for committed in range(min(copied.source), end.next_offset + 1):
        if end.places is None or (run := end.places.run(committed)) is None:
            continue
        read = Counter(content for offset, content in copied.target.items() if offset >= run.place(committed))
        unread = Counter(copied.source[offset] for offset in copied.kept if committed <= offset < end.next_offset)
        assert not unread - read, (committed, run)
        assert (read - unread).total() <= run.again, (committed, run)


def test_places_are_exact_where_nothing_was_repeated() -> None:
    """Also behind an offset that the tool left out, and where the target has control records."""
    target = {3 * number: PLAIN[offset] for number, offset in enumerate(range(0, 100, 2))}
    places = find_end(side(PLAIN), side(target), whole=True).places
    assert places is not None
    runs = [places.run(offset) for offset in range(100)]
    assert runs == [AdoptedRun(offset - offset % 2, 3 * (offset // 2), 1, 0) for offset in range(100)]
    assert [run.place(offset) for offset, run in enumerate(runs) if run][60:62] == [90, 91]


def test_offsets_that_the_tool_noted_count_only_if_the_records_are_equal() -> None:
    source, target = side(PLAIN), side({offset + 7: PLAIN[offset] for offset in range(90)})
    places = find_end(source, target, step=10, syncs=[(5, 12), (20, 28), (30, 37), (200, 300)]).places
    assert places is not None and (newest := places.run(89)) is not None
    assert newest == AdoptedRun(newest.source, newest.source + 7, 90 - newest.source, 0) and newest.source > 40
    assert places.run(29) == AdoptedRun(5, 12, 1, newest.target - 13), "20 is not at 28"
    assert places.run(30) == AdoptedRun(30, 37, 1, newest.target - 38)
    twin = {**PLAIN, 6: PLAIN[5]}
    places = find_end(side(twin), side({n: twin[n] for n in range(90)}), step=10, syncs=[(5, 5)]).places
    assert places is not None and places.run(20) is None, "which of the equal records it is cannot be seen"


def test_equal_records_at_the_edge_of_what_is_read_give_no_place() -> None:
    """The copy of 100 lies further back; the first one of 102, which is equal, is not taken for it."""
    source = {n: (b"x" if n in (100, 102) else b"%d" % n, 1000 + 10 * n if n != 102 else 2000) for n in range(200)}
    copies = [*range(103), *range(102, 190)]
    target = {number: source[offset] for number, offset in enumerate(copies)}
    step = len(copies) - 102
    places = find_end(side(source), side(target), step=step).places
    assert places is not None
    for committed in range(190):
        if (run := places.run(committed)) is not None:
            read = {content for offset, content in target.items() if offset >= run.place(committed)}
            assert not {source[offset] for offset in range(committed, 190)} - read, (committed, run)


def test_the_newest_places_are_kept_where_not_all_have_room() -> None:
    chance = random.Random(1)
    sources = sorted(chance.sample(range(1 << 40), 3000))
    runs = [AdoptedRun(source, source - 1, 1, chance.randrange(1 << 20)) for source in sources]
    places = AdoptedPlaces.of(runs)
    assert places is not None and len(places.numbers) <= MOST_ADOPTED
    assert places.run(sources[-1]) == runs[-1] and places.run(sources[-100] + 1) == runs[-100]
    assert places.run(sources[0]) is None, "not one that lies further on"


PLAIN = {offset: (b"%d" % offset, 1000 + offset) for offset in range(100)}
HALF = {offset: PLAIN[offset] for offset in range(50)}


def test_a_second_kill_amid_what_was_repeated() -> None:
    """The last records of the target are old; those behind them at the source are further back on the target."""
    target = dict(enumerate([PLAIN[offset] for offset in (*range(60), *range(20, 40))]))
    end = find_end(side(PLAIN), side(target), step=10)
    assert (end.next_offset, end.doubles) == (60, 0) and 20 < end.target_from <= 40
    assert find_end(side(PLAIN), side(target), whole=True).doubles == 20


def test_equal_records_at_the_end() -> None:
    source = {0: (b"a", 1), **dict.fromkeys(range(1, 9), (b"x", 2)), 9: (b"b", 3)}
    target = dict(enumerate([(b"a", 1), *[(b"x", 2)] * 5, (b"a", 1), *[(b"x", 2)] * 3]))
    end = find_end(side(source), side(target))
    assert (end.next_offset, end.doubles, end.missing) == (9, 1, 0), "its doubles of equal records stand for the others"
    assert find_end(side(source), side(dict(list(target.items())[:6]))).doubles == 0


def test_equal_records_at_the_beginning_of_what_is_read() -> None:
    """They follow a record that lies further back, so that further back is read."""
    source = {12: (b"u", 1), 14: (b"x", 2), 15: (b"x", 2), 16: (b"v", 3)}
    target = {3: source[12], 5: source[14], 7: source[15], 9: source[12], 11: source[14]}
    assert find_end(side(source, 12), side(target), step=7).next_offset == 16


def test_equal_records_that_were_repeated_and_others_behind_them() -> None:
    source = {0: (b"u", 1), 1: (b"x", 1), 2: (b"x", 1), 3: (b"y", 2), 4: (b"y", 2)}
    target = dict(enumerate(source[n] for n in (0, 1, 2, 2, 3, 4)))
    assert find_end(side(source), side(target)).next_offset == 5


def test_equal_records_of_which_the_copied_ones_cannot_be_seen() -> None:
    """Either 1 and 2 were repeated, or 3 was left out, and 4 and 5 were copied."""
    source = {0: (b"u", 1), 1: (b"x", 2), 2: (b"y", 2), 3: (b"z", 2), 4: (b"x", 2), 5: (b"y", 2)}
    target = dict(enumerate(source[n] for n in (0, 1, 2, 1, 2)))
    with pytest.raises(Refused, match="around offset 3"):
        find_end(side(source), side(target))


def test_only_the_end_is_read() -> None:
    read = list[int]()
    log = side(HALF)

    def rows(wanted: OffsetRange) -> Iterable[Row]:
        read.extend(range(wanted.from_, wanted.until))
        return log.rows(wanted)

    end = find_end(side(PLAIN), Log(log.range, rows, log.at_time), step=10)
    places = AdoptedPlaces.of([AdoptedRun(40, 40, 10, 0)])
    assert end == CopyEnd(next_offset=50, target_from=40, compared=10, places=places) and read == list(range(40, 50))


@pytest.mark.parametrize(
    ("source", "target", "options", "expected"),
    [
        (side(PLAIN), side({**HALF, 50: (b"other", 2000)}), {}, "1 records of the target, the first at offset 50"),
        (side({}, 30), side(HALF), {}, "the source no longer has any"),
        (side({60: PLAIN[60]}, 60), side(HALF), {}, "the source no longer has any"),
        (side(dict.fromkeys(range(9), (b"x", 1))), side(dict.fromkeys(range(9), (b"x", 1))), {}, "told apart"),
        (side(PLAIN), side(HALF), {"stored": 53}, "stored 53 as the next source offset, but its copy ends before 50: 3 "),
        (side({}, 50), side(HALF), {"stored": 49}, "the source no longer has any"),
        (side({60: (b"new", -1)}, 50), side({0: (b"old", -1)}), {"stored": 55}, "1 records of the target"),
        (side(PLAIN), side({0: (b"9-", 1001), **{n: PLAIN[n] for n in range(1, 50)}}), {"step": 10}, None),
        (side(PLAIN), side({0: (b"9-", 1001), **{n: PLAIN[n] for n in range(1, 50)}}), {"whole": True}, "the first at offset 0"),
    ],
)  # fmt: skip
def test_what_the_records_do_not_prove(
    source: Log, target: Log, options: dict[str, object], expected: str | None
) -> None:
    if expected is None:
        assert find_end(source, target, **options).next_offset == 50  # type: ignore[arg-type]
        return
    with pytest.raises(Refused, match=expected):
        find_end(source, target, **options)  # type: ignore[arg-type]


def test_what_the_source_no_longer_has() -> None:
    """Retention has removed what was copied first, compaction what has a newer record of its key."""
    kept = {offset: PLAIN[offset] for offset in range(40, 100)}
    found, places = find_end(side(kept, 40), side(HALF)), AdoptedPlaces.of([AdoptedRun(40, 40, 10, 0)])
    assert found == CopyEnd(next_offset=50, target_from=0, compared=50, places=places)
    compacted = {offset: PLAIN[offset] for offset in range(100) if offset not in (45, 46)}
    assert find_end(side(compacted), side(HALF), compacts=True).next_offset == 50
    with pytest.raises(Refused, match="2 records of the target, the first at offset 45"):
        find_end(side(compacted), side(HALF))
    assert find_end(side({}, 50), side(HALF), stored=50) == CopyEnd(next_offset=50, target_from=50)


def test_aborted_records_that_the_tool_copied() -> None:
    end = find_end(side(PLAIN, aborted=frozenset(range(42, 46))), side({n: PLAIN[n] for n in range(50) if n != 43}))
    assert (end.next_offset, end.aborted, end.missing, end.doubles) == (50, 3, 0, 0)
