"""``python -m benchmarks.packing``: what packing small batches takes, beside what sending each by itself takes.

From these tables come the seconds by which the batch engine decides (`kafka/batch_engine.py`). The first packs
batches without brokers. The second copies the same topic with all of its batches packed and with none, in turn, in this
process; its times are processor time, because seconds of the wall clock depend on how busy the machine is.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time

from benchmarks import clusters
from benchmarks.clusters import Pair
from benchmarks.tables import heading, row
from benchmarks.two_workers import TwoWorkers, ours
from benchmarks.usage import Usage, Used, middle
from benchmarks.workload import REPEATS, SCALE, Shape, fill
from kafka_replication.kafka import batch_engine
from kafka_replication.spark import worker
from kafka_replication.spark.jobs import Job, JobEnd
from kafka_replication.spark.launcher import Deliver
from kafka_replication.wire.batch import Batch, batches, packed
from kafka_replication.wire.contents import repacked
from tests.support.raw_produce import RawRecord, raw_batch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ALONE = ((100, 160), (100, 1000), (1024, 16), (1024, 128), (10_240, 10))  # bytes of a record, records in a batch
COPIED = ((100, 64), (100, 160), (100, 400), (1024, 16), (1024, 64))
RECORDS = {100: 600_000, 1024: 200_000}


class InThisProcess(TwoWorkers):
    """Copies and reads back without other processes, so that what is set here holds for the copying."""

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        with Usage([os.getpid()], self._brokers) as usage:
            deliver([worker.replicate(job, task) for task in job.tasks])
        self.copying = usage.used
        return JobEnd()


def _batches(size: int, count: int, codec: int) -> list[Batch]:
    """As many equal batches as are packed into one."""
    dice = random.Random(7)
    words = [str(dice.getrandbits(40)) for _ in range(400)]
    values = (" ".join(dice.choices(words, k=size // 8 + 1)).encode()[:size] for _ in range(count))
    [plain] = batches(memoryview(raw_batch([RawRecord(b"k%08d" % at, value) for at, value in enumerate(values)])))
    one = plain._replace(attributes=codec, payload=memoryview(packed(codec, bytes(plain.payload))))
    number = max(2, batch_engine.TOGETHER // (count * (size + 20)))
    return [one._replace(base_offset=at * count) for at in range(number)]


def _packing(size: int, count: int, codec: int) -> float:
    """Seconds that packing one batch takes: the least of several."""
    came, least = _batches(size, count, codec), math.inf
    for _ in range(5):
        began = time.process_time()
        repacked(came, 0, len(came) * count)
        least = min(least, (time.process_time() - began) / len(came))
    return least


def _copied(pair: Pair, shape: Shape) -> list[Used]:
    """Copying with all batches packed, and with none."""
    several: dict[float, list[Used]] = {math.inf: [], 0.0: []}
    for number in range(1 + REPEATS):
        for a_request, used in several.items():
            batch_engine.A_REQUEST = a_request
            name = f"{shape.topic}-{'packed' if a_request else 'single'}-{number}"
            done = ours(pair, shape.topic, name, InThisProcess(pair.brokers), copy={"engine": "batch"})
            pair.forget(name)
            if number:  # the first turn warms the brokers up
                used.append(done.copying)
    return [middle(used) for used in several.values()]


def main() -> None:
    print("Packing alone: microseconds a batch\n")
    heading(("records", *CODECS))
    for size, count in ALONE:
        row([f"{count:,} x {size:,} B", *(1e6 * _packing(size, count, codec) for codec in range(len(CODECS)))])
    print("\nCopying and reading back, lz4: milliseconds of processor time a batch\n")
    heading(("records", "packed", "of the brokers", "each by itself", "of the brokers"))
    with clusters.plain() as pair:
        for size, each in COPIED:
            topic = f"packing-{size}-{each}"
            shape = Shape(topic=topic, records=RECORDS[size], size=size, each=each).scaled(SCALE)
            fill(pair.clusters[0].bootstrap, shape)
            used = _copied(pair, shape)
            print(f"{topic}: {used}", file=sys.stderr)
            per_batch = 1000 * each / shape.records
            row([f"{each:,} x {size:,} B", *(cell * per_batch for one in used for cell in (one.cpu, one.brokers))])


if __name__ == "__main__":
    main()
