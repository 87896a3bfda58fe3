"""``python -m benchmarks.delivery``: what each delivery profile costs, as ratios to ``exactly_once`` in the same turn.

As `throughput`, with a target of BROKERS brokers (default 3, with three replicas of everything) and RECORDS records
(default 200,000) of 1 KiB. Two sizes of chunks: the default, where the cost of a commit is not seen, and 500 records,
where it is most of the cost. The profiles take turns, in another order each time; the first turn warms the brokers up.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.throughput import SIZE, fill, ours
from kafka_replication.model.delivery import EXACTLY_ONCE, PROFILES
from stack.artifacts import kafka_jars
from stack.kafka_cluster import BENCH, KafkaCluster, start_all, stop_all

CHUNKS = {"default chunks": {}, "chunks of 500": {"chunk_records": 500}}
Speeds = dict[tuple[str, str], float]  # by chunks and profile, in MB/s


def turns(folder: Path, source: str, target: str, records: int, replicas: int) -> Iterator[Speeds]:
    dice, numbers = random.Random(7), itertools.count()
    while True:
        speeds: Speeds = {}
        for chunks, copy in CHUNKS.items():
            for delivery in dice.sample(PROFILES, len(PROFILES)):
                settings = {
                    "delivery": delivery,
                    "copy": copy,
                    "target_topics": {"replication_factor": replicas},
                    **({} if delivery in (EXACTLY_ONCE, "at_least_once") else {"accept_loss": 1.0}),
                }
                run = ours(folder, source, target, next(numbers), **settings)
                speeds[chunks, delivery] = records * SIZE / 1e6 / run.seconds["copy"]
        yield speeds


def main() -> None:
    records, brokers = int(os.environ.get("RECORDS", "200000")), int(os.environ.get("BROKERS", "3"))
    measured = int(os.environ.get("TURNS", "3"))
    os.environ[BENCH] = "1"  # brokers as production has them
    kafka_jars()
    folder = Path(tempfile.mkdtemp(prefix="kafka-replication-bench-"))
    clusters = KafkaCluster("source", folder), KafkaCluster("target", folder, brokers)
    found = defaultdict[tuple[str, str], list[float]](list)
    ratios = defaultdict[tuple[str, str], list[float]](list)
    try:
        start_all(clusters)
        source, target = (cluster.bootstrap for cluster in clusters)
        fill(source, records)
        for number, speeds in enumerate(
            itertools.islice(turns(folder, source, target, records, min(3, brokers)), 1 + measured)
        ):
            for (chunks, delivery), speed in speeds.items() if number else ():
                found[chunks, delivery].append(speed)
                ratios[chunks, delivery].append(speed / speeds[chunks, EXACTLY_ONCE])
            print(
                f"{number}: {json.dumps({' '.join(of): round(speed, 1) for of, speed in speeds.items()})}",
                file=sys.stderr,
            )
        for of, some in found.items():
            print(
                json.dumps({"of": " ".join(of), "mb_s": round(median(some), 1), "ratio": round(median(ratios[of]), 2)})
            )
    finally:
        stop_all(clusters)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
