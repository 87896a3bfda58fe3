"""Copying alone, and copying with reading back: each engine beside MirrorMaker 2 and a client loop of librdkafka.

Ours runs the very functions that a Spark Python worker runs, in two processes, without Spark's start. The start of the
peers is left out as well. All take turns in a random order, and ratios are those within a turn, as a machine is not
equally fast at all times. A topic that was copied is deleted before the next one copies.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks import clusters, franz_go, librdkafka, mirrormaker
from benchmarks.clusters import Pair
from benchmarks.tables import show
from benchmarks.two_workers import ours
from benchmarks.usage import Used, middle
from benchmarks.workload import ENGINES, FEW, REPEATS, SCALE, SHAPES, Shape, fill

MIRRORMAKER, LOOP = "MirrorMaker 2", "loop of librdkafka"
WARM_UP = 1  # turns, on the first topic of new brokers
COLUMNS = (
    "topic",
    "copied by",
    "MB/s: copy",
    "times MirrorMaker",
    "MB/s: copy + verify",
    "times MirrorMaker's copy",
    "CPU s per GB",
    "of the brokers",
    "largest process, MB",
    "threads",
)
ABOUT = (
    "copying alone, without the start of anything; MB/s of values; CPU seconds of copying, and of verifying where"
    " that is done, for each GB; memory and threads of one process"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """One copy of a topic: what copying used, and copying with verification. For a peer both are the same."""

    copy: Used
    both: Used


Turn = Mapping[str, Copied]  # by who copied
Copier = Callable[[Pair, Shape, str], Copied]  # gets a new name


def _of_engine(engine: str) -> Copier:
    def copy(pair: Pair, shape: Shape, name: str) -> Copied:
        done = ours(pair, shape.topic, name, copy={"engine": engine})
        return Copied(copy=done.copying, both=done.copying + done.reading_back)

    return copy


def _of_peer(copy: Callable[[Pair, str, int, str], Used]) -> Copier:
    def copied(pair: Pair, shape: Shape, name: str) -> Copied:
        used = copy(pair, shape.topic, shape.records, name)
        return Copied(copy=used, both=used)

    return copied


OURS: Mapping[str, Copier] = {f"`{engine}`": _of_engine(engine) for engine in ENGINES}
COPIERS: Mapping[str, Copier] = {
    **OURS,
    MIRRORMAKER: _of_peer(mirrormaker.copy),
    LOOP: _of_peer(librdkafka.copy),
}


def _turns(pair: Pair, shape: Shape, warm_up: int) -> Iterator[Turn]:
    dice, copiers = random.Random(7), dict(COPIERS)
    if franz_go.copies(pair):
        copiers[franz_go.NAME] = _of_peer(franz_go.start_to_end)
    for number in range(warm_up + REPEATS):
        turn = {}
        for at, copier in dice.sample(list(enumerate(copiers)), len(copiers)):
            name = f"{shape.topic}-{number}-{at}"
            turn[copier] = copiers[copier](pair, shape, name)
            pair.forget(name)
        said = ", ".join(f"{copier} {turn[copier].both.seconds:.1f} s" for copier in copiers)
        print(f"{shape}, turn {number}: {said}", file=sys.stderr)
        if number >= warm_up:
            yield {copier: turn[copier] for copier in copiers}


def _row(shape: Shape, copier: str, turns: Sequence[Turn]) -> list[object]:
    """The medians of one way to copy, and of its ratios to MirrorMaker within a turn."""
    own, peer = [turn[copier] for turn in turns], [turn[MIRRORMAKER].copy for turn in turns]
    used, verified = middle([one.both for one in own]), copier in OURS
    return [
        f"{shape}",
        copier,
        shape.megabytes / median(one.copy.seconds for one in own),
        median(other.seconds / one.copy.seconds for one, other in zip(own, peer, strict=True)),
        shape.megabytes / used.seconds if verified else "-",
        median(other.seconds / one.both.seconds for one, other in zip(own, peer, strict=True)) if verified else "-",
        used.cpu / shape.megabytes * 1000,
        used.brokers / shape.megabytes * 1000,
        round(used.mb),
        used.threads,
    ]


def _table(name: str, about: str, pair: Pair, shapes: Sequence[Shape]) -> dict[str, float]:
    """Print the table; the largest process of each of ours."""
    rows, largest = list[list[object]](), dict[str, float]()
    for number, shape in enumerate(shapes):
        fill(pair.clusters[0].bootstrap, shape)
        turns = list(_turns(pair, shape, 0 if number else WARM_UP))
        rows += [_row(shape, copier, turns) for copier in turns[0]]
        largest |= {f"{shape}, {own}": max(turn[own].both.mb for turn in turns) for own in OURS}
    show(name, f"{ABOUT}{about}", COLUMNS, rows)
    return largest


def _shapes(share: float, count: int = len(SHAPES)) -> list[Shape]:
    return [shape.scaled(share * SCALE) for shape in SHAPES[:count]]


def near() -> dict[str, float]:
    with clusters.plain() as pair:
        few = [shape.scaled(SCALE) for shape in FEW]
        return _table("copy", "; one broker on each side", pair, [*_shapes(1), *few])


def three_brokers() -> dict[str, float]:
    with clusters.plain(3) as pair:
        return _table("brokers", "; three brokers as the target, 3 replicas of all, `acks=all`", pair, _shapes(0.5, 2))


def distant() -> dict[str, float]:
    with clusters.distant() as pair:
        trip = f"{clusters.ROUND_TRIP * 1000:.0f} ms"
        return _table("distance", f"; {trip} to the target and back", pair, _shapes(0.5, 2))


def secured() -> dict[str, float]:
    with clusters.secured() as pair:
        return _table("tls", "; TLS and SCRAM-SHA-512 at both ends", pair, _shapes(0.5, 2))
