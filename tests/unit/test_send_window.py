"""How far a producer may be ahead of its target: as far as the target comes in some seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_replication.copying.sink import Record
from kafka_replication.kafka.producers import FIRST, SendWindow, mean_size

SECONDS = 10.0
SIZE = 1_000


def records(count: int, size: int = SIZE) -> list[Record]:
    return [(n, 1, b"", b"x" * size, None) for n in range(count)]


@dataclass
class Target:
    """Acknowledges so many bytes a second of a fake clock."""

    rate: float
    now: float = 0.0
    waiting: float = 0.0  # bytes
    longest: float = 0.0
    window: SendWindow = field(init=False)

    def __post_init__(self) -> None:
        self.window = SendWindow(SECONDS, lambda: self.now)

    def send(self, batch: list[Record]) -> None:
        self.waiting += len(batch) * SIZE
        self.longest = max(self.longest, self.waiting)
        self.window.hold_back(batch, lambda: int(self.waiting / SIZE), self.wait)

    def wait(self, left: int) -> None:
        assert left
        self.now += 0.05
        self.waiting = max(0.0, self.waiting - 0.05 * self.rate)


def test_a_slow_target_has_never_much_more_to_take_than_it_takes_in_the_time() -> None:
    target = Target(200_000)
    for _ in range(100):
        target.send(records(1_000))
    assert target.longest <= SECONDS * target.rate + 1_000 * SIZE
    assert target.longest > SECONDS * target.rate / 2


def test_a_fast_target_is_waited_for_once() -> None:
    target = Target(50e6)
    for _ in range(100):
        target.send(records(1_000))
    assert 0 < target.now < 1
    assert target.longest > 60e6


def test_what_fits_into_the_first_window_waits_for_nothing() -> None:
    target = Target(1.0)
    target.send(records(FIRST // SIZE - 1))
    target.send([])
    assert target.now == 0


def test_a_target_that_becomes_slow_is_noticed() -> None:
    target = Target(10e6)
    for _ in range(200):
        target.send(records(1_000))
    target.rate = 100_000
    for _ in range(200):
        target.send(records(1_000))
    assert target.waiting <= SECONDS * target.rate + 1_000 * SIZE


def test_each_answer_shows_how_large_later_requests_may_be() -> None:
    """A fast target would never make a producer wait, and would get small requests for ever."""
    window, before = SendWindow(SECONDS), FIRST
    for _ in range(20):
        window.seen(100_000, 0.002)
        assert before <= window.most <= 2 * before, "step by step: the first bytes of a slow way may be fast"
        before = window.most
    assert before == SECONDS * 50_000_000
    window.seen(100, 1.0)
    assert window.most == before, "a small batch that took its time says nothing of large ones"


def test_the_size_of_records_is_estimated_from_some_of_them() -> None:
    assert mean_size(records(10_000, 700)) == 700
    assert mean_size([(0, 1, None, None, None)]) == 0
