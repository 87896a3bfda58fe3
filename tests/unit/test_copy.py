"""The copy protocol against a simulated target that fails wherever it likes: each record arrives once, in order, or is named."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from unittest.mock import ANY

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_replication.config import Copy
from kafka_replication.config.failures import Failures, Policy
from kafka_replication.copying.engine import Chunk, CopyResult, CopyTask, Stop
from kafka_replication.copying.protocol import Copier
from kafka_replication.ledger.entries import FailedRecord, Ids, Place, Position, Receipt
from kafka_replication.ledger.placement import KafkaSegments, Placement, Segment
from kafka_replication.model import times
from kafka_replication.model.errors import Fenced, ForeignWriter, Refused, Stalled, Unreachable
from kafka_replication.model.failures import Failure, FailureKind
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.sinks.port import Guarantee, Record, RefusedAt, Sink, SinkSession, TargetState
from kafka_replication.sinks.set_aside import SetAside
from kafka_replication.verification.digest import key_digest
from kafka_replication.verification.verify import TargetReader, select_receipts

KEY = PartitionKey("orders-dr", TopicPartition("orders", 0), "orders")
IDS = Ids("SRC", "s-orders", "t-orders")


def record_of(offset: int) -> Record:
    return (offset, 1, b"k%d" % offset, None, None)


class Killed(BaseException):
    """The process dies here; nothing of it runs any more, its transaction stays open."""


@dataclass
class Slot:
    """One offset of the target's log: a record (by its source offset) or a transaction's marker."""

    record: int | None
    state: Literal["open", "prepared", "committed", "aborted"]


@dataclass
class Target:
    """A partition and its ledger as transactions leave them. Only `fence` settles what a dead session left behind."""

    log: list[Slot] = field(default_factory=list)
    position: Position | None = None
    receipts: dict[int, Receipt] = field(default_factory=dict)
    epoch: int = 0
    in_doubt: tuple[list[Slot], Position, Receipt] | None = (
        None  # the coordinator has PrepareCommit, nobody sees it yet
    )
    open: list[Slot] = field(default_factory=list)

    def settle(self) -> None:
        """What `init_transactions` does to the transaction of this id: complete what was prepared, abort what was open."""
        if self.in_doubt:
            self.apply(*self.in_doubt)
        elif self.open:
            self.end("aborted")

    def apply(self, slots: list[Slot], position: Position, receipt: Receipt) -> None:
        self.position = position
        self.receipts[receipt.range.from_] = receipt
        self.end("committed")
        self.in_doubt = None

    def end(self, state: Literal["committed", "aborted"]) -> None:
        for slot in self.open:
            slot.state = state
        self.open = []
        self.log.append(Slot(None, state))  # the marker takes an offset of its own

    def visible(self) -> list[int]:
        """What a `read_committed` reader sees."""
        return [slot.record for slot in self.log if slot.state == "committed" and slot.record is not None]


@dataclass
class World:
    """The source's visible offsets, the target, and what goes wrong at which call."""

    records: list[int]
    target: Target = field(default_factory=Target)
    chunk: int = 3
    faults: dict[int, str] = field(default_factory=dict)  # call number -> kind
    refused_late: set[int] = field(default_factory=set)  # the broker refuses, some time after the client took it
    refused_at_once: set[int] = field(default_factory=set)  # the client itself refuses
    kinds: dict[int, FailureKind] = field(default_factory=dict)  # of refused records
    ids: Ids = IDS
    calls: int = 0
    most: int = 10_000  # records that the target takes in the time of a chunk
    sizes: list[int] = field(default_factory=list)  # records of each chunk that was begun
    trace: list[str] = field(default_factory=list)
    during: Callable[[str], None] = lambda call: None

    def call(self, name: str) -> str | None:
        """Count one call; raise here, or return the fault that the call itself has to play."""
        self.trace.append(name)
        fault = self.faults.pop(self.calls, None)
        self.calls += 1
        self.during(name)
        match fault:
            case "killed":
                raise Killed
            case "fenced":
                raise Fenced("orders-0: a newer copier took over", "")
            case "unreachable":
                raise Unreachable(f"orders-0: {name} was not answered", "run again")
            case "stalled":
                raise Stalled(f"orders-0: {name} made no progress", "run again")
        return fault


class Session:
    """A `SinkSession` on the simulated target."""

    def __init__(self, world: World, aside: SetAside | None = None) -> None:
        self.world, self.epoch, self.known = world, -1, 0
        self.aside = aside or SetAside()
        self.writer: Writer | None = None

    @property
    def written(self) -> int:
        return 0 if self.writer is None else len(self.writer.written)

    @property
    def first(self) -> Record | None:
        return record_of(self.writer.written[0]) if self.writer and self.writer.written else None

    @property
    def throttled(self) -> float:
        return 0.5

    def _check_epoch(self) -> None:
        assert self.epoch >= 0, "used before it fenced the others"
        if self.epoch != self.world.target.epoch:
            raise Fenced("orders-0: a newer copier took over", "")

    def fence(self) -> None:
        fault = self.world.call("fence")
        target = self.world.target
        target.settle()
        target.epoch += 1
        self.epoch = target.epoch
        if fault == "after":
            raise Unreachable("orders-0: init_transactions was not answered", "run again")

    def position(self) -> Position | None:
        self.world.call("position")
        return self.world.target.position

    def check_target(self, position: Position) -> None:
        self.world.call("check_target")
        self.known = position.target_end
        self.check_between(len(self.world.target.log))

    def check_between(self, first: int) -> None:
        slots, self.known = self.world.target.log[self.known : first], first
        if any(slot.state == "committed" and slot.record is not None for slot in slots):
            raise ForeignWriter(
                "orders-0 on the target holds a record that the ledger does not know", "stop the other writer"
            )

    def check_ids(self, ids: Ids) -> None:
        self.world.call("check_ids")
        if self.world.ids != ids:
            raise Refused("orders-0: a topic was re-created during the copy", "plan again")

    def begin(self) -> Writer:
        self._check_epoch()
        self.writer = Writer(self.world, len(self.world.target.log), self.aside)
        return self.writer

    def commit(self, position: Position, receipt: Receipt) -> None:
        target, fault = self.world.target, self.world.call("commit")
        self._check_epoch()
        if fault == "prepared":  # sent, and the answer lost: it takes effect when somebody fences
            target.in_doubt = (target.open, position, receipt)
            raise Unreachable("orders-0: commit_transaction was not answered", "run again")
        target.apply(target.open, position, receipt)
        self.known, self.writer = len(target.log), None
        if fault == "after":
            raise Unreachable("orders-0: commit_transaction was not answered", "run again")
        if fault == "killed after":
            raise Killed

    def close(self) -> None:
        """A living session aborts what it left open, unless the commit is already under way or it was fenced."""
        target = self.world.target
        if self.epoch == target.epoch and target.open and not target.in_doubt:
            target.end("aborted")


@dataclass
class Writer:
    """A `RecordWriter` on the simulated target."""

    world: World
    first: int
    aside: SetAside
    written: list[int] = field(default_factory=list)
    taken: list[FailedRecord] = field(default_factory=list)

    def screen(self, record: Record) -> Failure | None:
        return self.aside.known.get(record[0])

    full = False

    def set_aside(self, record: Record, failure: Failure) -> None:
        self.aside.check(len(self.taken), failure.offset, failure.reason)
        place = Place("quarantine", 0, 7) if self.aside.action(failure) == "quarantine" else None
        self.taken.append(
            FailedRecord(
                offset=record[0],
                kind=failure.kind.value,
                reason=failure.reason,
                error="",
                size=0,
                key_digest="",
                digest="",
                place=place,
            )
        )

    @property
    def failures(self) -> tuple[FailedRecord, ...]:
        return tuple(self.taken)

    def write(self, records: Sequence[Record]) -> None:
        for offset, *_ in records:
            if offset in self.world.refused_at_once:
                kind = self.world.kinds.get(offset, FailureKind.REFUSED)
                key = record_of(offset)[2]
                raise RefusedAt(f"the record at offset {offset} is refused", "remove it", offset, kind=kind, key=key)
            slot = Slot(offset, "open")
            self.world.target.log.append(slot)
            self.world.target.open.append(slot)
            self.written.append(offset)

    def finish(self, digest: str) -> Placement:
        if late := sorted(self.world.refused_late & set(self.written)):
            named = late[0] if len(self.written) == 1 else None
            key = None if named is None else record_of(named)[2]
            what = f"the record at offset {named} is refused"
            raise RefusedAt(what, "raise the limit", named, len(self.written), key=key)
        if not self.written:
            return KafkaSegments()
        last = len(self.world.target.log) - 1
        count = len(self.written)
        return KafkaSegments((Segment(partition=0, first=self.first, last=last, count=count, digest=digest),))


@dataclass
class Reader:
    """A `SourceReader` of the simulated source."""

    world: World
    throttled: float = 0.25

    def check_ids(self, ids: Ids) -> None:
        self.world.trace.append("check_source")
        if self.world.ids != ids:
            raise Refused("orders-0: a topic was re-created during the copy", "plan again")

    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        world = self.world
        fault = world.call("copy_chunk")
        ready = [offset for offset in world.records if offset in left]
        taken = ready[: min(most_records, world.chunk)]
        world.sizes.append(len(taken))
        writer = target.begin()
        records: list[Record] = [record_of(offset) for offset in taken]
        failed = {record[0]: failure for record in records if writer.screen and (failure := writer.screen(record))}
        for record in records:
            if record[0] in failed:
                writer.set_aside(record, failed[record[0]])
        written = [record for record in records if record[0] not in failed]
        writer.write(written)
        if fault == "after" or len(taken) > world.most:
            raise Unreachable("orders-0: records not delivered", "run again")
        placement = writer.finish(str(taken))
        until = left.until if len(taken) == len(ready) else ready[len(taken)]
        return Chunk(
            range=OffsetRange(left.from_, until),
            count=len(written),
            bytes=10 * len(written),
            digest=str(taken),
            placement=placement,
            leader_epoch=5 if taken else None,
            failures=writer.failures,
        )


@dataclass
class Engine:
    world: World
    name: str = "simulated/1"
    digest_kind: str = "list"

    def supports(self, task: CopyTask, sink: Sink) -> str | None:
        return None

    @contextmanager
    def reader(self, task: CopyTask) -> Iterator[Reader]:
        yield Reader(self.world)


@dataclass
class SimulatedSink:
    world: World
    guarantee: Guarantee = "transactional"

    def look(self, names: Collection[str]) -> Mapping[str, TargetState]:
        raise NotImplementedError

    def verifier(self, key: PartitionKey) -> AbstractContextManager[TargetReader]:
        raise NotImplementedError

    @contextmanager
    def session(self, key: PartitionKey, ids: Ids, aside: SetAside | None = None) -> Iterator[Session]:
        session = Session(self.world, aside)
        self.world.trace.append("session")
        try:
            yield session
        except Killed:
            raise
        except BaseException:
            session.close()
            raise
        else:
            session.close()


def opened(start: int = 0, **more: Any) -> Target:
    return Target(position=Position(generation=1, ids=IDS, start=start, next_offset=start), **more)


def task(from_: int, until: int, **changes: Any) -> CopyTask:
    made = CopyTask(key=KEY, range=OffsetRange(from_, until), ids=IDS, generation=1, run_id="run-1")
    return replace(made, **changes)


def copier(world: World, *, sessions: int = 4, **more: Any) -> Copier:
    return Copier(
        engine=Engine(world),
        sink=SimulatedSink(world),
        settings=Copy(attempts=sessions),
        **{"pause": lambda seconds: None, **more},
    )


def until_settled(world: World, wanted: CopyTask, sessions: int = 4, **more: Any) -> CopyResult:
    """Run again after every death and every error that running again can heal; look at the target after each."""
    for _ in range(100):
        try:
            result = copier(world, sessions=sessions, **more).copy(wanted)
        except Killed:
            assert_consistent(world)
            continue
        assert_consistent(world)
        if result.error is None or not result.retriable:
            return result
    raise AssertionError("never done")


def assert_consistent(world: World) -> None:
    """What readers of the target see is what the ledger says (once an answer that got lost takes effect), each record once."""
    target = world.target
    if target.in_doubt:
        return  # not decided yet, neither way
    assert target.position is not None
    coverage = target.position.coverage
    aside = {failed.offset for receipt in target.receipts.values() for failed in receipt.failures}
    expected = [offset for offset in world.records if any(offset in each for each in coverage) and offset not in aside]
    assert target.visible() == expected
    receipts = select_receipts(coverage, target.receipts.values())
    assert Coverage.of(each.range for each in receipts) == coverage
    for receipt in receipts:
        failed = [each.offset for each in receipt.failures]
        inside = [offset for offset in world.records if offset in receipt.range and offset not in failed]
        assert receipt.count == len(inside)
        assert receipt.quarantined + receipt.skipped == len(failed) == len(set(failed))
        assert [target.log[at].record for each in receipt.parts for at in range(each.first, each.until)] == inside


FAULTS = st.dictionaries(
    st.integers(0, 60),
    st.sampled_from(["killed", "killed after", "fenced", "unreachable", "stalled", "after", "prepared"]),
    max_size=12,
)
OFFSETS = st.sets(st.integers(0, 29), max_size=25).map(sorted)


@given(OFFSETS, st.integers(1, 8), FAULTS, st.lists(st.integers(0, 30), max_size=3), st.integers(1, 4))
@settings(max_examples=400)
def test_whatever_fails_wherever_running_again_leaves_each_record_once_and_in_order(
    records: list[int], chunk: int, faults: dict[int, str], cuts: list[int], sessions: int
) -> None:
    world = World(records, opened(), chunk, dict(faults))
    ends = [0, *sorted({*cuts, 30} - {0})]
    for from_, until in itertools.pairwise(ends):  # one run after the other, each with its own bounded range
        result = until_settled(world, task(from_, until))
        assert result.error is None
        assert world.target.position is not None
        assert world.target.position.next_offset == until
    assert world.target.visible() == records
    assert str(world.target.position.coverage if world.target.position else None) == "[0, 30)"


@given(OFFSETS, st.integers(1, 8), FAULTS)
@settings(max_examples=200)
def test_the_whole_range_asked_for_again_copies_nothing_twice(
    records: list[int], chunk: int, faults: dict[int, str]
) -> None:
    world = World(records, opened(), chunk, dict(faults))
    until_settled(world, task(0, 20))
    before = list(world.target.log)
    until_settled(world, task(0, 20))
    assert [
        slot for slot in world.target.log[len(before) :] if slot.state == "committed" and slot.record is not None
    ] == []
    assert until_settled(world, task(0, 30)).error is None  # a stale plan that overlaps what was copied
    assert world.target.visible() == records


@given(
    st.sets(st.integers(0, 29), min_size=1).map(sorted),
    st.integers(1, 8),
    FAULTS,
    st.sets(st.integers(0, 29), max_size=3),
    st.sets(st.integers(0, 29), max_size=3),
)
@settings(max_examples=400)
def test_a_refused_record_is_named_and_all_before_it_is_copied(
    records: list[int], chunk: int, faults: dict[int, str], late: set[int], at_once: set[int]
) -> None:
    world = World(records, opened(), chunk, dict(faults), refused_late=late, refused_at_once=at_once - late)
    refused = sorted((late | at_once) & set(records))
    result = until_settled(world, task(0, 30))
    if not refused:
        assert result.error is None
        return
    assert result.error == f"the record at offset {refused[0]} is refused"
    assert result.remedy
    assert not result.retriable
    assert world.target.visible() == [offset for offset in records if offset < refused[0]]
    assert world.target.position is not None
    assert world.target.position.next_offset == refused[0]
    world.refused_late, world.refused_at_once = set(), set()  # somebody raised the limit
    assert until_settled(world, task(0, 30)).error is None
    assert world.target.visible() == records


@given(
    st.sets(st.integers(0, 29), min_size=1).map(sorted),
    st.integers(1, 8),
    FAULTS,
    st.sets(st.integers(0, 29), max_size=6),
    st.sets(st.integers(0, 29), max_size=6),
    st.sampled_from(["quarantine", "skip"]),
)
@settings(max_examples=400)
def test_refused_records_are_set_aside_once_and_all_others_are_copied(
    records: list[int], chunk: int, faults: dict[int, str], late: set[int], at_once: set[int], policy: Policy
) -> None:
    world = World(records, opened(), chunk, dict(faults), refused_late=late, refused_at_once=at_once - late)
    refused = sorted((late | at_once) & set(records))
    result = until_settled(world, task(0, 30, most_failed=len(refused)), failures=Failures(policy=policy))
    assert result.error is None
    assert world.target.visible() == [offset for offset in records if offset not in refused]
    named = [failed for _, receipt in sorted(world.target.receipts.items()) for failed in receipt.failures]
    assert [failed.offset for failed in named] == refused
    assert all((failed.place is not None) == (policy == "quarantine") for failed in named)


@pytest.mark.parametrize("chunk", [1, 20])
@pytest.mark.parametrize("most", [0, 1, 2])
def test_one_record_more_than_the_limit_fails_the_range_behind_all_that_lies_before_it(most: int, chunk: int) -> None:
    world = World(list(range(10)), opened(), chunk, refused_at_once={2, 5, 8})
    result = copier(world, failures=Failures(policy="skip")).copy(task(0, 10, most_failed=most))
    assert result.error is not None and "failures.limit" in result.error and not result.retriable
    assert (result.failed, result.copied) == (most, [2, 4, 6][most])
    assert world.target.position is not None and world.target.position.next_offset == [2, 5, 8][most]
    assert_consistent(world)


def test_a_kind_with_the_policy_to_fail_fails_behind_others_that_are_set_aside() -> None:
    world = World(list(range(10)), opened(), 4, refused_at_once={2, 6})
    world.kinds[6] = FailureKind.TOO_LARGE
    rules = Failures(policy="quarantine", too_large="fail")
    result = copier(world, failures=rules).copy(task(0, 10, most_failed=9))
    assert result.error == "the record at offset 6 is refused"
    assert world.target.visible() == [0, 1, 3, 4, 5]
    assert_consistent(world)


# --- refused records, step by step ----------------------------------------------------------------------------------------------------


def test_a_refusal_that_names_no_record_halves_the_chunk_until_it_does() -> None:
    world = World(list(range(10)), opened(), 4, refused_late={6})
    result = copier(world).copy(task(0, 10))
    assert result.error == "the record at offset 6 is refused"
    assert result.remedy == "raise the limit"
    assert (result.copied, result.retriable, result.fenced) == (6, False, False)
    assert world.target.visible() == [0, 1, 2, 3, 4, 5]
    # 4, 5, 6, 7 are refused, 4 and 5 are committed, 6 is refused alone; the last session finds nothing left to copy.
    assert (world.sizes, world.trace.count("session")) == ([4, 4, 2, 1], 3)


@pytest.mark.parametrize("refused", [0, 1, 511, 777, 1022, 1023])
def test_naming_a_refused_record_takes_a_number_of_chunks_that_grows_with_the_logarithm(refused: int) -> None:
    world = World(list(range(2048)), opened(), 1024, refused_late={1024 + refused})
    result = copier(world).copy(task(0, 2048))
    assert result.error == f"the record at offset {1024 + refused} is refused"
    assert world.target.visible() == list(range(1024 + refused))
    assert len(world.sizes) <= 2 + 11
    assert sum(world.sizes) <= 2 * 1024 + 1024  # what is sent again for it is at most one chunk's records


def test_a_refusal_that_names_its_record_needs_no_smaller_chunks() -> None:
    world = World(list(range(10)), opened(), 4, refused_at_once={6})
    assert copier(world).copy(task(0, 10)).error == "the record at offset 6 is refused"
    assert world.target.visible() == [0, 1, 2, 3, 4, 5]
    assert [name for name in world.trace if "session" in name] == ["session", "session"]


def test_the_first_record_of_a_range_refused_copies_nothing() -> None:
    world = World(list(range(10)), opened(), 4, refused_late={0})
    result = copier(world).copy(task(0, 10))
    assert result.error == "the record at offset 0 is refused"
    assert (result.copied, world.target.visible(), world.target.receipts) == (0, [], {})


def test_an_earlier_record_that_the_broker_refuses_hides_behind_one_that_the_client_refuses() -> None:
    """The client's refusal of 6 comes at once, the broker's of 2 only when what lies before 6 is sent again."""
    world = World(list(range(10)), opened(), 8, refused_late={2}, refused_at_once={6})
    assert copier(world).copy(task(0, 10)).error == "the record at offset 2 is refused"
    assert world.target.visible() == [0, 1]


def test_a_refusal_that_does_not_come_again_is_no_error() -> None:
    world = World(list(range(10)), opened(), 4, refused_late={6})

    def heal(call: str) -> None:
        if world.trace.count("session") > 1:
            world.refused_late.clear()

    world.during = heal
    result = copier(world).copy(task(0, 10))
    assert (result.error, result.copied) == (None, 10)
    assert world.target.visible() == list(range(10))


# --- the order of things --------------------------------------------------------------------------------------------------------------


def test_the_position_is_read_after_fencing_and_the_ids_are_checked_before_every_commit() -> None:
    world = World(list(range(5)), opened(), 3)
    assert copier(world).copy(task(0, 5)).error is None
    assert world.trace == [
        "session",
        "fence",
        "position",
        "check_source",
        "check_target",
        "copy_chunk",
        "check_source",
        "check_ids",
        "commit",
        "copy_chunk",
        "check_source",
        "check_ids",
        "commit",
    ]


def test_a_commit_whose_answer_was_lost_is_not_repeated() -> None:
    for fault in ("after", "prepared"):
        world = World(list(range(5)), opened(), 3, {5: fault})
        result = copier(world).copy(task(0, 5))
        assert (result.error, result.sessions) == (None, 2)
        assert world.target.visible() == [0, 1, 2, 3, 4]
        assert world.trace.count("commit") == 2  # one for each chunk


def test_a_topic_that_is_re_created_during_the_copy_gets_no_commit() -> None:
    world = World(list(range(5)), opened(), 3)

    def recreate(call: str) -> None:
        if call == "copy_chunk" and world.target.receipts:
            world.ids = replace(IDS, source_topic="other")

    world.during = recreate
    result = copier(world).copy(task(0, 5))
    assert (result.error, result.remedy) == ("orders-0: a topic was re-created during the copy", "plan again")
    assert (result.retriable, result.copied) == (False, 3)
    assert world.target.visible() == [0, 1, 2]


def test_a_foreign_record_on_the_target_stops_the_copy_before_anything_is_sent() -> None:
    world = World(list(range(5)), opened(log=[Slot(99, "committed")]), 3)
    result = copier(world).copy(task(0, 5))
    assert result.error == "orders-0 on the target holds a record that the ledger does not know"
    assert (result.sessions, "copy_chunk" in world.trace) == (1, False)


def test_nothing_left_means_no_transaction() -> None:
    world = World(list(range(5)), opened(), 3)
    copier(world).copy(task(0, 5))
    world.trace.clear()
    result = copier(world).copy(task(0, 5))
    assert (result.error, result.copied, result.chunks, result.sessions) == (None, 0, 0, 1)
    assert world.trace == ["session", "fence", "position", "check_source", "check_target"]


def test_offsets_already_covered_are_left_out() -> None:
    world = World(list(range(10)), opened(), 3)
    assert world.target.position is not None
    world.target.position = replace(world.target.position, coverage=Coverage.of([OffsetRange(3, 6)]))
    assert copier(world).copy(task(0, 10)).copied == 7
    assert world.target.visible() == [0, 1, 2, 6, 7, 8, 9]
    assert world.target.position.next_offset == 10


# --- being fenced ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["check_ids", "check_target", "copy_chunk", "commit"])
def test_a_copier_that_is_overtaken_leaves_at_once_and_never_fences_back(moment: str) -> None:
    world = World(list(range(10)), opened(), 4)
    newer: list[CopyResult] = []

    def overtake(call: str) -> None:
        if call == moment and not newer:
            world.during = lambda call: None
            newer.append(copier(world).copy(task(0, 10, run_id="run-2")))

    world.during = overtake
    older = copier(world).copy(task(0, 10))
    assert newer[0].error is None
    assert newer[0].copied == 10
    assert (older.fenced, older.retriable, older.sessions, older.copied) == (True, True, 1, 0)
    assert older.error == "orders-0: a newer copier took over"
    assert world.trace.count("fence") == 2
    assert world.target.visible() == list(range(10))
    assert {receipt.run_id for receipt in world.target.receipts.values()} == {"run-2"}


# --- doubt, and its bounds ------------------------------------------------------------------------------------------------------------


def test_a_cluster_that_never_answers_ends_after_the_sessions_allowed_with_growing_pauses() -> None:
    world, pauses = World([0], opened(), faults=dict.fromkeys(range(50), "stalled")), list[float]()
    result = copier(world, sessions=7, pause=pauses.append).copy(task(0, 1))
    assert (result.sessions, result.retriable, result.fenced) == (7, True, False)
    assert result.error == (
        "copying orders-0 [0, 1): 7 attempts in a row failed (copy.attempts), so this run gives up; the last error was:"
        " orders-0: fence made no progress"
    )
    assert result.remedy == "run again; raise copy.attempts if such an outage is to be outlasted"
    assert pauses == pytest.approx([0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_after_500_attempts_it_is_named_and_said_where_the_copy_stands() -> None:
    """500 is the default. The first chunk was committed; what the target does not acknowledge then is the next one."""
    world = World(list(range(30)), opened(), 10)
    world.during = lambda call: setattr(world, "most", 0) if call == "commit" else None
    made = copier(world)
    made.settings = Copy()
    result = made.copy(task(0, 30))
    assert (result.sessions, result.copied, result.retriable) == (500, 10, True)
    assert result.error is not None and "500 attempts in a row failed (copy.attempts)" in result.error
    assert result.error.endswith("the last error was: orders-0: records not delivered")
    assert result.stop == Stop(
        offset=10, key_digest=key_digest(b"k10"), attempts=500, seconds=ANY, error_id="attempts-exhausted"
    )


def test_a_refused_record_is_where_the_copy_stands() -> None:
    world = World(list(range(30)), opened(), 10, refused_late={17})
    result = copier(world).copy(task(0, 30))
    assert result.stop == Stop(
        offset=17, key_digest=key_digest(b"k17"), attempts=2, seconds=ANY, error_id="record-refused"
    )


def test_a_copy_that_ends_before_it_reads_a_record_has_an_offset_and_no_key() -> None:
    result = copier(World([5, 6], opened(), faults=dict.fromkeys(range(9), "fenced"))).copy(task(5, 9))
    assert result.stop == Stop(offset=5, key_digest="", attempts=1, seconds=ANY, error_id="fenced")


def test_attempts_are_counted_from_the_last_chunk_that_was_committed() -> None:
    """A connection that is cut now and then is no cluster that never answers."""
    world = World(list(range(30)), opened(), 1)

    def cut(call: str) -> None:
        if call == "copy_chunk" and world.trace.count("copy_chunk") % 2 == 0:
            raise Unreachable("orders-0: cut", "run again")

    world.during = cut
    result = copier(world, sessions=2).copy(task(0, 30))
    assert (result.error, result.copied, result.sessions) == (None, 30, 30)


def test_a_run_out_of_time_ends_by_name_and_keeps_what_is_committed() -> None:
    world = World(list(range(10)), opened(), 4)

    made = copier(world)

    def slow(call: str) -> None:
        if call == "commit" and world.target.receipts:
            made.deadline = Deadline(0.0)

    world.during = slow
    result = made.copy(task(0, 10))
    assert result.error == "copying orders-0 [8, 10): the run's time (timeouts.run) is used up"
    assert (result.copied, result.retriable, result.fenced) == (8, False, False)
    assert world.target.visible() == list(range(8))


def test_no_pause_reaches_beyond_the_runs_time() -> None:
    world, pauses = World([0], opened(), faults=dict.fromkeys(range(50), "unreachable")), list[float]()
    result = copier(world, sessions=500, pause=pauses.append, deadline=Deadline.after(0.3)).copy(task(0, 1))
    assert result.error == (
        "copying orders-0 [0, 1): the run's time (timeouts.run) is used up; the last error was: orders-0: fence was not answered"
    )
    assert (pauses, result.retriable) == ([], False)


def test_a_range_that_does_not_move_is_given_up_long_before_its_last_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second chunk is committed at 100 s; nothing moves after that."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    world = World(list(range(9)), opened(), 3)

    def during(call: str) -> None:
        if call == "commit":
            now[0] += 50
        if len(world.target.visible()) == 6:
            now[0] += 10
            world.faults[world.calls] = "unreachable"

    world.during = during
    made = copier(world, sessions=500, pause=lambda seconds: None, deadline=Deadline().while_moving(600))
    result = made.copy(task(0, 9))
    assert result.error is not None and "range_without_progress" in result.error
    assert (result.retriable, result.copied, world.target.visible()) == (True, 6, list(range(6)))
    assert result.sessions < 100
    assert_consistent(world)


def test_what_cannot_be_sent_in_time_is_sent_in_smaller_chunks_that_grow_again() -> None:
    """The target takes at most 10 records in the time that a chunk has, for its first 40 records."""
    world = World(list(range(200)), opened(), chunk=1_000)

    def during(call: str) -> None:
        if call == "copy_chunk" and len(world.target.visible()) < 40:
            world.most = 10
        elif call == "copy_chunk":
            world.most = 1_000

    world.during = during
    result = copier(world, sessions=6).copy(task(0, 200))
    assert (result.error, world.target.visible()) == (None, list(range(200)))
    assert max(world.sizes[-2:]) > 20
    assert_consistent(world)


def test_the_time_that_quotas_took_is_added_up_over_sessions() -> None:
    """Each session of the simulated sides waits 0.5 s for the target and 0.25 s for the source."""
    result = copier(World(list(range(9)), opened(), 3, {6: "unreachable"})).copy(task(0, 9))
    assert (result.error, result.sessions, result.throttled) == (None, 2, 1.5)


def test_what_is_no_error_of_ours_is_not_swallowed() -> None:
    world = World([0], opened())

    def broken(call: str) -> None:
        raise ZeroDivisionError

    world.during = broken
    with pytest.raises(ZeroDivisionError):
        copier(world).copy(task(0, 1))


# --- the plan against the ledger --------------------------------------------------------------------------------------------------------

AT_5 = Position(generation=1, ids=IDS, start=0, next_offset=5, coverage=Coverage.of([OffsetRange(0, 5)]))


@pytest.mark.parametrize(
    ("position", "wanted", "error", "remedy"),
    [
        (
            None,
            task(0, 9),
            "orders-0: the ledger has no position for orders-dr: orders-0 -> orders, yet it was opened",
            "ledger topics",
        ),
        (AT_5, task(5, 9, generation=2), "orders-0: the plan is for generation 2, the ledger is at 1", "plan again"),
        (AT_5, task(5, 9, ids=replace(IDS, target_topic="t-new")), "a topic was re-created", "plan again"),
        (
            AT_5,
            task(7, 9),
            "orders-0: the ledger's position is 5, but it was 7 when [7, 9) was planned: the ledger went back to an older state",
            "plan again",
        ),
    ],
    ids=["no position", "generation", "ids", "ledger went back"],
)
def test_a_ledger_that_does_not_fit_the_plan_stops_the_copy(
    position: Position | None, wanted: CopyTask, error: str, remedy: str
) -> None:
    world = World(list(range(9)), Target(position=position))
    result = copier(world).copy(wanted)
    assert error in (result.error or "")
    assert remedy in result.remedy
    assert (result.retriable, result.sessions, world.target.log) == (False, 1, [])


def test_a_ledger_ahead_of_the_plan_is_believed() -> None:
    world = World(list(range(9)), Target(position=AT_5))
    assert copier(world).copy(task(2, 9)).copied == 4
    assert world.target.visible() == [5, 6, 7, 8]


# --- what is written and told -----------------------------------------------------------------------------------------------------------


def test_each_chunk_leaves_a_receipt_and_a_position_that_fit() -> None:
    world = World([0, 1, 4, 5], opened(), 3)
    copier(world).copy(task(0, 9))
    first, second = world.target.receipts.values()
    time = first.time
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    assert first == Receipt(
        generation=1,
        range=OffsetRange(0, 5),
        count=3,
        bytes=30,
        digest="[0, 1, 4]",
        digest_kind="list",
        engine="simulated/1",
        placement=KafkaSegments((Segment(partition=0, first=0, last=2, count=3, digest="[0, 1, 4]"),)),
        ids=IDS,
        run_id="run-1",
        time=time,
    )
    assert (second.range, second.count) == (OffsetRange(5, 9), 1)
    # Target offsets 0-2 and 4 are records, 3 is the first transaction's marker.
    assert world.target.position == Position(
        generation=1,
        ids=IDS,
        start=0,
        next_offset=9,
        coverage=Coverage.of([OffsetRange(0, 9)]),
        leader_epoch=5,
        target_end=5,
    )


def test_a_range_without_visible_records_still_moves_the_position() -> None:
    world = World([], opened(), 3)
    result = copier(world).copy(task(0, 9))
    assert (result.error, result.copied, result.chunks) == (None, 0, 1)
    assert world.target.position == Position(
        generation=1, ids=IDS, start=0, next_offset=9, coverage=Coverage.of([OffsetRange(0, 9)])
    )
    assert next(iter(world.target.receipts.values())).parts == ()


def test_the_result_counts_this_calls_work_and_progress_is_told_after_each_commit() -> None:
    told: list[tuple[int, int, int]] = []
    world = World(list(range(7)), opened(), 3, {5: "after"})

    def progress(wanted: CopyTask, so_far: CopyResult) -> None:
        assert wanted == task(0, 7)
        told.append((so_far.copied, so_far.chunks, so_far.bytes))

    result = copier(world, progress=progress).copy(task(0, 7))
    # The first chunk's commit was answered too late: an earlier session's work that this call cannot vouch for.
    assert told == [(3, 1, 30), (4, 2, 40)]
    assert (result.key, result.range, result.copied, result.bytes, result.chunks, result.sessions) == (
        KEY,
        OffsetRange(0, 7),
        4,
        40,
        2,
        2,
    )
    assert result.seconds >= 0


def test_now_is_utc_in_milliseconds() -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", times.now())
