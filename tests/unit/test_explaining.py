"""Several source partitions write to the same target partitions without transactions: losses and copies are counted
exactly, whatever their contents are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.ledger.entries import Ids, Receipt, Transform
from kafka_replication.ledger.placement import KafkaPartitions, Part
from kafka_replication.model.errors import VerificationFailed
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.model.partitioning import PartitionedBy
from kafka_replication.verification.audit import Seen
from kafka_replication.verification.digest import DIGEST_KIND
from kafka_replication.verification.explaining import At, Explanation, Topic, Writer, explain, overlapping

PARTITIONS, CHUNK = 2, 3
BY = PartitionedBy(name="by_key", hash="", partitions=PARTITIONS)


def key(number: int) -> PartitionKey:
    return PartitionKey("unit", TopicPartition("orders", number), "orders")


def place(content: bytes) -> int:
    return content[0] % PARTITIONS


@dataclass
class World:
    """Sources of contents, a target log for each partition, and the receipts of what was sent to it."""

    sources: list[list[bytes]]
    logs: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    receipts: dict[int, list[Receipt]] = field(default_factory=dict)
    sent: list[int] = field(default_factory=list)  # of each source
    source_start: int = 0
    searched: int = 0  # records of the sources that were read to find an origin

    def __post_init__(self) -> None:
        self.sent = [0] * len(self.sources)

    def send(self, number: int, *, dies: bool = False) -> None:
        """One chunk. A copier that dies then leaves its records."""
        first = self.sent[number]
        chunk = self.sources[number][first : first + CHUNK]
        offsets: dict[int, list[OffsetRange]] = {}
        for content in chunk:
            log = self.logs[place(content)]
            offsets.setdefault(place(content), []).append(OffsetRange(len(log), len(log) + 1))
            log.append(content)
        if dies or not chunk:
            return
        self.sent[number] += len(chunk)
        parts = [
            Part(partition=at, offsets=Coverage.of(ranges), count=len(ranges), digest="")
            for at, ranges in sorted(offsets.items())
        ]
        self.receipts.setdefault(number, []).append(receipt(first, len(chunk), *parts))

    def cut(self, partition: int, length: int) -> None:
        """A new leader has only so many records."""
        del self.logs[partition][length:]

    def explain(self, sent_from: tuple[int, ...] = (0, 0), foreign: int = 0) -> Explanation:
        known = [(number, one) for number, receipts in self.receipts.items() for one in receipts]
        doubtful = overlapping([one for number, one in known if self._is_there(number, one)])
        writers = tuple(self._writer(number, doubtful, sent_from) for number in range(len(self.sources)))
        ends = {number: OffsetRange(0, len(log)) for number, log in enumerate(self.logs)}
        return explain(Topic(writers=writers, logs=ends), _Sides(self))

    def _writer(self, number: int, doubtful: list[Receipt], sent_from: tuple[int, ...]) -> Writer:
        known = self.receipts.get(number, [])
        return Writer(
            key=key(number),
            next_offset=self.sent[number],
            sent_from=sent_from,
            receipts=tuple(known),
            compared=tuple(one for one in known if one in doubtful or not self._is_there(number, one)),
        )

    def _is_there(self, number: int, one: Receipt) -> bool:
        chunk = self.sources[number][one.range.from_ : one.range.until]
        there = {
            part.partition: [
                c for range_ in part.offsets for c in self.logs[part.partition][range_.from_ : range_.until]
            ]
            for part in one.parts
        }
        return there == {at: [c for c in chunk if place(c) == at] for at in {place(c) for c in chunk}}

    @property
    def committed(self) -> Counter[bytes]:
        return Counter(c for source, sent in zip(self.sources, self.sent, strict=True) for c in source[:sent])

    @property
    def target(self) -> Counter[bytes]:
        return Counter(content for log in self.logs for content in log)


def receipt(first: int, count: int, *parts: Part) -> Receipt:
    return Receipt(
        generation=1,
        range=OffsetRange(first, first + count),
        count=count,
        bytes=100,
        digest="",
        digest_kind=DIGEST_KIND,
        engine="unit",
        placement=KafkaPartitions(BY, parts),
        ids=Ids("c", "s", "t"),
        run_id="unit",
        time="2030-01-31T06:00:00.000Z",
        delivery="leader_ack",
        after=0,
    )


@dataclass
class _Sides:
    world: World

    def of(self, one: PartitionKey) -> _Source:
        return _Source(self.world, one.source.partition)

    def target(self, partition: int, wanted: OffsetRange) -> Iterator[Seen]:
        log = self.world.logs[partition]
        return (Seen(offset, log[offset]) for offset in range(wanted.from_, wanted.until))


@dataclass
class _Source:
    world: World
    number: int
    transform: Transform | None = None

    def source_log(self) -> OffsetRange:
        return OffsetRange(self.world.source_start, len(self.world.sources[self.number]))

    def target_log(self, expected: int) -> OffsetRange:
        raise AssertionError

    def check_all_shown(self, until: int) -> None: ...

    def target_end(self, partition: int, expected: int) -> int:
        raise AssertionError

    def source(self, wanted: OffsetRange, without: Container[int] = ()) -> Iterator[Seen]:
        contents = self.world.sources[self.number]
        return (Seen(offset, contents[offset]) for offset in range(wanted.from_, wanted.until) if offset not in without)

    def around(self, wanted: OffsetRange, unreadable: Container[int] = ()) -> Iterator[Seen]:
        for record in self.source(wanted):
            self.world.searched += 1
            yield record

    def target(self, wanted: OffsetRange) -> Iterator[Seen]:
        raise AssertionError


CONTENTS = st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("cut"), st.integers(0, PARTITIONS - 1), st.integers(0, 6)),
    ),
    max_size=14,
)


@given(st.lists(CONTENTS, min_size=1, max_size=3), STEPS)
def test_what_is_lost_and_what_is_doubled_is_the_difference_of_both_sides(
    sources: list[list[bytes]], steps: list[tuple[str, int, int]]
) -> None:
    """Few contents: many records are equal, also of different source partitions and at the same offsets."""
    world = World(sources)
    for kind, number, how in steps:
        if kind == "cut":
            world.cut(number, max(0, len(world.logs[number]) - how))
        elif number < len(sources):
            world.send(number, dies=bool(how))
    found = world.explain()
    contents = [world.sources[lost.key.source.partition][lost.offset] for lost in found.lost]
    assert Counter(contents) == world.committed - world.target
    there = Counter(world.logs[copy.at.partition][copy.at.offset] for copy in found.copies)
    assert there == world.target - world.committed
    assert not found.foreign
    assert all(
        world.sources[copy.key.source.partition][copy.offset] == world.logs[copy.at.partition][copy.at.offset]
        for copy in found.copies
    )


def world() -> World:
    """Two sources with distinct records, of which each has sent one chunk."""
    made = World([[b"a0", b"b0", b"c0", b"d0", b"e0", b"f0"], [b"a1", b"b1", b"c1", b"d1", b"e1", b"f1"]])
    made.send(0)
    made.send(1)
    return made


def test_chunks_that_are_where_they_should_be_need_nothing_to_be_read() -> None:
    made = world()
    made.source_start = 6
    assert made.explain() == Explanation()
    assert not made.searched


def test_what_a_dead_copier_left_is_found_before_it_is_sent_again_and_after() -> None:
    made = world()
    made.send(0, dies=True)
    assert [(copy.key, copy.offset) for copy in made.explain().copies] == [(key(0), offset) for offset in (3, 4, 5)]
    made.send(1)
    made.send(0)
    assert sorted(copy.offset for copy in made.explain().copies) == [3, 4, 5]


def test_a_record_that_no_source_has_is_foreign() -> None:
    made = world()
    made.logs[1].append(b"nobody's")
    assert made.explain().foreign == (At(1, len(made.logs[1]) - 1),)


def test_what_lies_below_the_first_record_without_a_transaction_is_not_explained() -> None:
    made = World([[b"a0", b"b0", b"c0"]], logs=[[b"older"], [b"older"]])
    made.send(0)
    assert made.explain(sent_from=(1, 1)) == Explanation()
    assert len(made.explain(sent_from=(0, 1)).foreign) == 1


def test_only_who_can_have_sent_a_record_is_its_origin() -> None:
    """Both sources have it; the second one sent nothing there yet when it was written."""
    made = World([[b"a"], [b"a"]], logs=[[], [b"a"]])
    writers = tuple(Writer(key=key(number), next_offset=0, sent_from=(0, begin)) for number, begin in enumerate((1, 0)))
    logs = {number: OffsetRange(0, len(log)) for number, log in enumerate(made.logs)}
    found = explain(Topic(writers=writers, logs=logs), _Sides(made))
    assert [copy.key for copy in found.copies] == [key(1)]


def test_a_chunk_that_the_source_no_longer_shows_cannot_be_judged() -> None:
    made = world()
    made.cut(1, 0)
    made.source_start = 1
    with pytest.raises(VerificationFailed, match="cannot show what is missing"):
        made.explain()


def test_a_copy_that_was_found_before_is_not_counted_again() -> None:
    made = world()
    writer = Writer(key=key(0), next_offset=0, sent_from=(0, 0), explained=(3, 1))
    assert [writer.is_new(At(0, 2)), writer.is_new(At(0, 3)), writer.is_new(At(1, 1)), writer.is_new(At(2, 0))] == [
        False,
        True,
        True,
        True,
    ]
    assert not made.explain().copies_of(writer)
