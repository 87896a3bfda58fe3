"""``python -m benchmarks.delivery``: what each delivery profile costs, as ratios to ``exactly_once`` in the same turn.

As `copying`, with a target of BROKERS brokers (default 3, with three replicas of everything) and RECORDS records
(default 200,000) of 1 KiB. Two sizes of chunks: the default, where the cost of a commit is not seen, and 500 records,
where it is most of the cost. The profiles take turns, in another order each time; the first turn warms the brokers up.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks import clusters
from benchmarks.clusters import Pair
from benchmarks.two_workers import ours
from benchmarks.workload import Shape, fill
from kafka_replication.model.choices import EXACTLY_ONCE, PROFILES

CHUNKS = {"default chunks": {}, "chunks of 500": {"chunk_records": 500}}
Speeds = dict[tuple[str, str], float]  # by chunks and profile, in MB/s


def turns(pair: Pair, shape: Shape) -> Iterator[Speeds]:
    dice, numbers = random.Random(7), itertools.count()
    while True:
        speeds: Speeds = {}
        for chunks, copy in CHUNKS.items():
            for delivery in dice.sample(PROFILES, len(PROFILES)):
                settings: dict[str, Any] = {
                    "delivery": delivery,
                    "copy": copy,
                    **({} if delivery in (EXACTLY_ONCE, "at_least_once") else {"accept_loss": 1.0}),
                }
                run = ours(pair, shape.topic, f"bench-{next(numbers)}", **settings)
                speeds[chunks, delivery] = shape.megabytes / run.copying.seconds
        yield speeds


def main() -> None:
    records, brokers = int(os.environ.get("RECORDS", "200000")), int(os.environ.get("BROKERS", "3"))
    measured = int(os.environ.get("TURNS", "3"))
    shape = Shape(topic="bench", records=records, size=1024)
    found = defaultdict[tuple[str, str], list[float]](list)
    ratios = defaultdict[tuple[str, str], list[float]](list)
    with clusters.plain(brokers) as pair:
        fill(pair.clusters[0].bootstrap, shape)
        for number, speeds in enumerate(itertools.islice(turns(pair, shape), 1 + measured)):
            for (chunks, delivery), speed in speeds.items() if number else ():
                found[chunks, delivery].append(speed)
                ratios[chunks, delivery].append(speed / speeds[chunks, EXACTLY_ONCE])
            said = json.dumps({" ".join(of): round(speed, 1) for of, speed in speeds.items()})
            print(f"{number}: {said}", file=sys.stderr)
    for of, some in found.items():
        print(json.dumps({"of": " ".join(of), "mb_s": round(median(some), 1), "ratio": round(median(ratios[of]), 2)}))


if __name__ == "__main__":
    main()
