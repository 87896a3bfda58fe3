"""``python -m benchmarks.few_records``: each engine on batches of few records, as of producers without ``linger.ms``.

These tables show whether `auto` may leave all of them to the batch engine. The engines take turns, without Spark and
its start. With the argument ``cpu`` it prints the first table only: the processor time that one more record takes,
which depends least on how busy the machine is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from statistics import median

from benchmarks import clusters
from benchmarks.clusters import Pair
from benchmarks.packing import InThisProcess
from benchmarks.tables import heading, row
from benchmarks.two_workers import ours
from benchmarks.usage import Used, middle
from benchmarks.workload import REPEATS, SCALE, Shape, fill

RECORDS = {100: 200_000, 1024: 100_000}  # by the bytes of a record
EVERY = " ".join(f"{size}x{each}" for size in RECORDS for each in (1, 2, 4, 8, 16, 32))
SHAPES = os.environ.get("SHAPES", EVERY)  # bytes of a record, and records in a batch
TARGETS: Mapping[str, Callable[[], AbstractContextManager[Pair]]] = {
    "one broker": clusters.plain,
    "three brokers": partial(clusters.plain, 3),
    "20 ms away": clusters.distant,
}
COLUMNS = ("target", "topic", "records in a batch", "`batch`: MB/s", "CPU s per GB", "`record`: MB/s", "CPU s per GB")


def _copied(pair: Pair, shape: Shape) -> Mapping[str, Used]:
    """Copying and reading back, by engine."""
    fill(pair.clusters[0].bootstrap, shape)
    turns: dict[str, list[Used]] = {"batch": [], "record": []}
    for number in range(1 + REPEATS):
        for engine, used in turns.items():
            name = f"{shape.topic}-{engine}-{number}"
            done = ours(pair, shape.topic, name, copy={"engine": engine})
            pair.forget(name)
            if number:  # the first turn warms the brokers up
                used.append(done.copying + done.reading_back)
    return {engine: middle(used) for engine, used in turns.items()}


def _table(target: str, pair: Pair) -> None:
    for named in SHAPES.split():
        size, each = map(int, named.split("x"))
        shape = Shape(topic=f"few-{named}", records=RECORDS[size], size=size, each=each).scaled(SCALE)
        used = _copied(pair, shape)
        print(f"{target}, {shape.topic}: {used}", file=sys.stderr)
        cells = [
            cell for one in used.values() for cell in (shape.megabytes / one.seconds, one.cpu / shape.megabytes * 1000)
        ]
        row([target, f"{shape.records:,} x {size:,} B", each, *cells])


def _one_more(pair: Pair, few: Shape, many: Shape, engine: str) -> float:
    """Microseconds of this process for one more record: what a smaller topic costs as well is left out."""
    cpu = dict[str, list[float]]()
    for number in range(1 + REPEATS):
        for shape in (few, many):
            name = f"{shape.topic}-{engine}-{number}"
            done = ours(pair, shape.topic, name, InThisProcess(pair.brokers), copy={"engine": engine})
            pair.forget(name)
            if number:  # the first turn loads the engine
                cpu.setdefault(shape.topic, []).append(done.copying.cpu)
    return 1e6 * (median(cpu[many.topic]) - median(cpu[few.topic])) / (many.records - few.records)


def _cpu() -> None:
    print("`python -m benchmarks.few_records cpu`: copying and reading back, lz4, one broker on each side\n")
    heading(("bytes of a record", "records in a batch", "`batch`: microseconds a record", "`record`"))
    with clusters.plain() as pair:
        for named in SHAPES.split():
            size, each = map(int, named.split("x"))
            shape = Shape(topic=f"many-{named}", records=RECORDS[size], size=size, each=each).scaled(SCALE)
            few = replace(shape, topic=f"few-{named}").scaled(0.2)
            for one in (few, shape):
                fill(pair.clusters[0].bootstrap, one)
            row([size, each, *(_one_more(pair, few, shape, engine) for engine in ("batch", "record"))])
    print()


def main() -> None:
    _cpu()
    if sys.argv[1:] == ["cpu"]:
        return
    print("`python -m benchmarks.few_records`: copying and reading back, lz4, 4 partitions\n")
    heading(COLUMNS)
    for target, lie in TARGETS.items():
        with lie() as pair:
            _table(target, pair)


if __name__ == "__main__":
    main()
