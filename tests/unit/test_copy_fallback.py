"""What one engine hands over, or cannot do for whatever reason, another one copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from kafka_replication.copying.engine import Chunk, CopyTask, HandOver
from kafka_replication.copying.protocol import PATIENCE
from kafka_replication.copying.sink import SinkSession
from kafka_replication.ledger.entries import Position
from kafka_replication.model.errors import Unreachable
from kafka_replication.model.offsets import OffsetRange
from tests.support.simulated_copy import Engine, Reader, copier, task
from tests.support.simulated_target import World, opened


@dataclass
class Lost(Reader):
    """Reaches its broker for these offsets alone."""

    reachable: range = range(0)

    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        if left.from_ not in self.reachable:
            self.world.trace.append("lost")
            raise Unreachable("broker-1:9092: the name is not known", "run again")
        return super().copy_chunk(left, position, target, most_records)


@dataclass
class OtherEngine(Engine):
    name: str = "other/1"
    reachable: range = field(default=range(0))

    @contextmanager
    def reader(self, task: CopyTask) -> Iterator[Reader]:
        yield Lost(self.world, reachable=self.reachable)


def test_what_an_engine_cannot_do_after_some_attempts_the_fallback_copies() -> None:
    world = World(list(range(10)), opened())
    result = copier(world, sessions=100, engine=OtherEngine(world), fallback=Engine(world)).copy(task(0, 10))
    assert result.error is None
    assert world.target.visible() == world.records
    assert world.trace.count("lost") == PATIENCE
    assert {receipt.engine for receipt in world.target.receipts.values()} == {"simulated/1"}
    (turn,) = result.turns
    assert (turn.engine, turn.range) == ("simulated/1", OffsetRange(0, 10)) and "other/1 got no further" in turn.why


def test_what_it_can_do_it_does() -> None:
    world = World(list(range(10)), opened())
    engine = OtherEngine(world, reachable=range(5))
    result = copier(world, sessions=100, engine=engine, fallback=Engine(world)).copy(task(0, 10))
    assert result.error is None
    assert world.target.visible() == world.records
    engines = [receipt.engine for _, receipt in sorted(world.target.receipts.items())]
    assert engines == ["other/1", "other/1", "simulated/1", "simulated/1"]
    assert [turn.range for turn in result.turns] == [OffsetRange(6, 10)]


@dataclass
class HandingOver(Reader):
    """Copies all but every third record."""

    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        if left.from_ % 3 == 0:
            raise HandOver(left.from_ + 1, f"record {left.from_}")
        return super().copy_chunk(left, position, target, 1)


class HandingOverEngine(OtherEngine):
    @contextmanager
    def reader(self, task: CopyTask) -> Iterator[Reader]:
        yield HandingOver(self.world)


def test_the_result_tells_the_first_turns_and_why_another_engine_began() -> None:
    world = World(list(range(20)), opened())
    made = copier(world, engine=HandingOverEngine(world), why="not installed", fallback=Engine(world))
    result = made.copy(task(0, 20))
    assert result.error is None and world.target.visible() == world.records
    assert [(turn.engine, turn.range, turn.why) for turn in result.turns] == [
        ("other/1", OffsetRange(0, 20), "not installed"),
        ("simulated/1", OffsetRange(0, 1), "record 0"),
        ("simulated/1", OffsetRange(3, 4), "record 3"),
    ]
    assert replace(result, turns=()).joined_to(result).turns == result.turns


def test_without_a_fallback_it_fails_after_all_attempts() -> None:
    world = World(list(range(10)), opened())
    result = copier(world, sessions=5, engine=OtherEngine(world)).copy(task(0, 10))
    assert "5 attempts in a row failed" in str(result.error)
    assert world.trace.count("lost") == 5
