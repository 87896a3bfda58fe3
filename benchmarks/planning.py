"""``python -m benchmarks.planning``: what planning costs for many partitions, on a simulated snapshot; no broker is
started.

Each line is a process of its own: a live plan (half of the partitions known, half new), a backfill's plan for all of
them with its table and documents, the stored plan's round trip, and the first slice. Fails above 10 s or 500 MB for
10,000 partitions, or where ten times the partitions cost more than twenty times the time.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

from kafka_replication.config import Replication
from kafka_replication.documents import as_json
from kafka_replication.ledger.entries import Ids, Position, Verified
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning import plan_codec
from kafka_replication.planning.backfill_plan import Sample, next_slice, plan_backfill
from kafka_replication.planning.live import plan
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic
from kafka_replication.reporting.backfill import document, plan_table
from kafka_replication.reporting.run import plan_table as live_table

SIZES = (1_000, 10_000)
WIDTH = 10  # partitions of a topic
END, MOST = 1_000_000, 10_000
LIMIT_SECONDS, LIMIT_MB = 10.0, 500.0


def replication() -> Replication:
    return Replication.model_validate(
        {
            "name": "many",
            "source": {"connection": "source"},
            "target": {"connection": "target"},
            "topics": {"include": ["^t"]},
            "max_records_per_run": MOST,
        }
    )


def simulated(partitions: int) -> tuple[Snapshot, LedgerView]:
    """Topics of ten partitions; every second topic was copied before, up to half, with a few backfilled stretches
    behind it.
    """
    offsets = {number: PartitionOffsets(0, END, END, 1) for number in range(WIDTH)}
    names = [f"t{number:05}" for number in range(partitions // WIDTH)]
    config = {"retention.ms": "604800000", "cleanup.policy": "delete", "max.message.bytes": "1048588"}
    topics = {
        name: Topic(name=name, topic_id=f"id-{name}", partitions=offsets, replication_factor=3, config=config)
        for name in names
    }
    behind = [OffsetRange(END // 2 + 50_000 * k, END // 2 + 50_000 * k + 10_000) for k in range(1, 6)]
    position = {
        PartitionKey("many", TopicPartition(name, number), name): Position(
            generation=1,
            ids=Ids("SRC", f"id-{name}", f"id-{name}"),
            start=0,
            next_offset=END // 2,
            coverage=Coverage.of([OffsetRange(0, END // 2), *behind]),
            leader_epoch=1,
            target_end=END,
        )
        for name in names[::2]
        for number in range(WIDTH)
    }
    verified = {
        key: Verified(
            generation=1, coverage=each.coverage, level="digest", run_id="run", time="2030-01-31T06:00:00.000Z"
        )
        for key, each in position.items()
    }
    return Snapshot(source_cluster="SRC", target_cluster="TGT", source=topics, target=topics), LedgerView(
        position, verified
    )


def measure(partitions: int) -> dict[str, float]:
    """Seconds of each step, and the process's peak memory in MB."""
    settings, (snapshot, view) = replication(), simulated(partitions)
    started = time.perf_counter()
    live = plan(settings, snapshot, view, {})
    live_table(live)
    planned = time.perf_counter()
    asked = {p.key.source: OffsetRange(1_000, END) for p in live.partitions}
    sample = dict.fromkeys(asked, Sample(300, 300, 300_000, 1_700_000_000_000))
    made = plan_backfill(settings, snapshot, view, {}, asked, opens=False, live=live).estimated(sample)
    plan_table(made)
    json.dumps(as_json(document(made)))
    backfill = time.perf_counter()
    stored = plan_codec.decode(plan_codec.encode(made.plan), "run")
    next_slice(stored, view.positions, MOST)
    ended = time.perf_counter()
    assert len(live.partitions) == len(made.lines) == partitions
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "live": planned - started,
        "backfill": backfill - planned,
        "stored": ended - backfill,
        "all": ended - started,
        "mb": peak,
    }


def main() -> None:
    found = {}
    print("partitions   live plan s   backfill plan s   store and slice s   peak MB")
    for size in SIZES:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.planning", str(size)], check=True, capture_output=True, text=True
        )
        found[size] = each = json.loads(done.stdout)
        print(
            f"{size:>10,}   {each['live']:>11.2f}   {each['backfill']:>15.2f}   {each['stored']:>17.2f}  "
            f" {each['mb']:>7.0f}",
            flush=True,
        )
    small, large = (found[size] for size in SIZES)
    ratio = large["all"] / small["all"]
    print(f"ten times the partitions cost {ratio:.1f} times the time")
    if large["all"] > LIMIT_SECONDS or large["mb"] > LIMIT_MB or ratio > 20:
        sys.exit("planning is slower, larger or less linear than it may be")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]))))
    else:
        main()
