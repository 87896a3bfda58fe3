"""A simulated source and target for the copier's tests: every call may fail, before or after it took effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

from kafka_replication.config import Copy
from kafka_replication.copying.engine import Chunk, CopyResult, CopyTask
from kafka_replication.copying.protocol import Copier
from kafka_replication.copying.sink import Batches, Record, RefusedAt, SetAside, Sink, SinkSession
from kafka_replication.ledger.entries import FailedRecord, Ids, Place, Position, Receipt
from kafka_replication.ledger.placement import KafkaSegments, Part, Placement, Segment
from kafka_replication.model.choices import Failure, FailureKind
from kafka_replication.model.errors import Fenced, ForeignWriter, Refused, TargetLost, Unreachable
from kafka_replication.model.offsets import OffsetRange, PartitionKey
from kafka_replication.verification.digests import Digest
from kafka_replication.verification.verify import PartDigest, TargetReader
from tests.support.simulated_target import IDS, KEY, Killed, Slot, Target, World, assert_consistent, record_of


class Session:
    """The part of a `SinkSession` that the copier uses, on the simulated target."""

    def __init__(self, world: World, aside: SetAside | None = None) -> None:
        self.world, self.epoch, self.known = world, -1, 0
        self.aside = aside or SetAside()
        self.writer: Writer | None = None

    @property
    def batches(self) -> Batches | None:
        return None

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
        if self.known and self.world.target.log[self.known - 1].state != "committed":
            raise TargetLost("orders-0 on the target does not show our last record", "run again")
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
        position = self.world.target.position
        before = 0 if position is None else position.set_aside
        self.writer = Writer(self.world, len(self.world.target.log), self.aside, before)
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
    before: int  # records that are set aside already
    written: list[int] = field(default_factory=list)
    taken: list[FailedRecord] = field(default_factory=list)

    def screen(self, record: Record) -> Failure | None:
        return self.aside.known.get(record[0])

    full = False

    def set_aside(self, record: Record, failure: Failure) -> None:
        self.aside.check(self.before + len(self.taken), failure.offset, failure.reason)
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
class Shown:
    """Counts what a `read_committed` reader sees. The simulation has no digests and no quarantine."""

    target: Target

    def read(self, part: Part, digest: Digest | None) -> PartDigest:
        slots = self.target.log[part.first : part.until]
        return PartDigest(sum(slot.state == "committed" and slot.record is not None for slot in slots), "")

    def quarantined(self, failed: FailedRecord) -> bool:
        raise NotImplementedError


@dataclass
class SimulatedSink:
    world: World

    def why_not_batches(self, topic: str, settings: Mapping[str, str] | None = None) -> str | None:
        return "it is simulated"

    def verifier(self, key: PartitionKey) -> AbstractContextManager[TargetReader]:
        return nullcontext(Shown(self.world.target))

    @contextmanager
    def session(self, key: PartitionKey, ids: Ids, aside: SetAside | None = None) -> Iterator[SinkSession]:
        session = Session(self.world, aside)
        self.world.trace.append("session")
        try:
            yield cast(SinkSession, session)
        except Killed:
            raise
        except BaseException:
            session.close()
            raise
        else:
            session.close()


def task(from_: int, until: int, **changes: Any) -> CopyTask:
    made = CopyTask(key=KEY, range=OffsetRange(from_, until), ids=IDS, generation=1, run_id="run-1")
    return replace(made, **changes)


def copier(world: World, *, sessions: int = 4, **more: Any) -> Copier:
    return Copier(
        sink=SimulatedSink(world),
        settings=Copy(),
        attempts=sessions,
        **{"engine": Engine(world), "pause": lambda seconds: None, **more},
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
