"""``python -m benchmarks.page [URL]``: how long the pages take with 200 replications, 10,000 partitions and 100,000
runs, and what the looks and samples behind them cost. URL is that of an empty store; without one it is an SQLite file.

The times are those of the server's work, from the request to the first byte, without Airflow's own part (login,
rights). A page above LIMIT_SECONDS ends with code 1.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import NullPool, Table, create_engine, insert, text

from kafka_replication.documents import StatusRow
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.model.times import floor_millis
from kafka_replication.overview.metrics import Collector, exposition
from kafka_replication.store import open_store, schema
from kafka_replication.store.watermark_store import WatermarkStore
from kafka_replication.watermarks.sight import Facts, Lag, Span, Total, Work
from kafka_replication.web import pages
from kafka_replication.web.actions import Site
from kafka_replication.web.pages import Reader
from tests.support.status_rows import status_row

REPLICATIONS, PARTITIONS, RUNS, RANGES = 200, 50, 500, 4  # partitions and runs of a replication, ranges of a run
FAILED = 100  # records that wait for a decision, of each replication
TURNS, LIMIT_SECONDS = 9, 0.5
NOW = datetime.now(UTC)
FACTS = Facts(source="kafka_source", target="kafka_target", schedule="*/15 * * * *", topics=("orders",))
NAMES = [f"replication-{number:03}" for number in range(REPLICATIONS)]
KEY = PartitionKey(NAMES[7], TopicPartition("orders", 0), "orders")
TOTALS = (*map(Total, ("records", "bytes", "retries", "throttled_seconds")), Total("runs", "live", "done"))
BATCH = 20_000


def status_rows(partitions: int) -> list[StatusRow]:
    """What `status --json` says of so many partitions, one of ten of them 9 offsets behind."""
    behind = {"source_end": 1_000_009, "high_watermark": 1_000_009, "lag_seconds": 60.0}
    return [status_row(**behind, partition=number, lag=0 if number % 10 else 9) for number in range(partitions)]


def rows_of(name: str) -> Iterator[tuple[Table, dict[str, Any]]]:
    """What a year of work leaves of one replication."""
    place = {"replication": name, "source_topic": "orders", "target_topic": "orders"}
    now = floor_millis(NOW)
    for number in range(RUNS):
        run_id, at = f"airflow-{name}-scheduled-{number}", now - (RUNS - number) * 900_000
        run = {"run_id": run_id, "replication": name, "kind": "live", "state": "done", "plan": "", "created_at": at}
        yield schema.runs, {**run, "finished_at": at + 60_000}
        for partition in range(RANGES):
            from_ = number * 2_000
            yield (
                schema.outcomes,
                {
                    **place,
                    "run_id": run_id,
                    "source_partition": (number + partition) % PARTITIONS,
                    "from_offset": from_,
                    "until_offset": from_ + 2_000,
                    "copied": 2_000,
                    "not_visible": 0,
                    "digest_ok": True,
                    "level": "digest",
                    "watermark": from_ + 2_000,
                    "seconds": 1.0,
                    "bytes": 200_000,
                    "recorded_at": at + 50_000,
                },
            )
    for partition in range(PARTITIONS):
        ids = {"generation": 1, "source_topic_id": "a", "target_topic_id": "b", "version": 1}
        mark = {**place, **ids, "source_partition": partition, "next_offset": 1_000_000, "run_id": "r"}
        yield schema.watermarks, {**mark, "updated_at": now - 900_000}
    for span, count in ((Span.MINUTE, 1440), (Span.HOUR, 744), (Span.DAY, 60)):
        for number in range(1, count + 1):
            seen = {"lag_records": number % 97, "lag_seconds": 60.0, "records": 10, "bytes": 1000, "seconds": 1.0}
            at = now // span * span - number * span
            yield schema.samples, {"replication": name, "span": int(span), "at": at, "run_id": "", **seen}
    for number in range(FAILED):
        step = json.dumps([{"time": "2026-05-04T12:00:00.000Z", "state": "quarantined", "run_id": "r"}])
        words = {"kind": "too_large", "state": "quarantined", "reason": "it is too large", "error": "KR-1"}
        record = {"size": 1, "key_digest": "", "digest": "ab", "history": step, "updated_at": now, **words}
        yield (
            schema.failed_records,
            {**place, **record, "source_partition": 0, "generation": 1, "source_offset": number},
        )


def fill(url: str) -> None:
    engine = create_engine(url, poolclass=NullPool)
    waiting: dict[Table, list[dict[str, Any]]] = {}
    order = [schema.runs, schema.outcomes, schema.watermarks, schema.samples, schema.failed_records]

    def write() -> None:
        with engine.begin() as db:
            for table in order:
                if values := waiting.pop(table, []):
                    db.execute(insert(table), values)

    for name in NAMES:
        for table, values in rows_of(name):
            waiting.setdefault(table, []).append(values)
        if sum(map(len, waiting.values())) > BATCH:
            write()
    write()
    with engine.begin() as db:
        db.execute(text("ANALYZE"))
    engine.dispose()


def measured(act: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and seconds of this process's processor time, which other processes change less: medians of `TURNS`."""
    seconds, busy = [], []
    for _ in range(TURNS):
        began, busy_before = time.perf_counter(), time.process_time()
        act()
        seconds.append(time.perf_counter() - began)
        busy.append(time.process_time() - busy_before)
    return statistics.median(seconds), statistics.median(busy)


def pages_of(url: str, store: WatermarkStore) -> dict[str, Callable[[], object]]:
    reader = Reader(store=store, site=Site("/kafka-replication", ""), now=NOW, allowed=[KEY.replication])
    metrics = Collector(lambda: open_store(url))
    run_id = f"airflow-{KEY.replication}-scheduled-{RUNS - 1}"
    return {
        "all replications": lambda: pages.front(reader, lambda name: True, "", 1, part=False),
        "a search among them": lambda: pages.front(reader, lambda name: True, "replication-19", 1, part=True),
        "one replication": lambda: pages.replication(reader, KEY.replication),
        "its plots of a year": lambda: pages.replication(reader, KEY.replication, period="year"),
        "its numbers, every 2 s": lambda: pages.live(reader, KEY.replication),
        "a partition with its map": lambda: pages.partition(reader, KEY),
        "old runs": lambda: pages.runs(reader, KEY.replication, 30),
        "a run": lambda: pages.run(reader, KEY.replication, run_id),
        "a scrape": lambda: exposition(metrics),
        "a scrape with topics": lambda: exposition(replace(metrics, by_topic=True)),
    }


def writes_of(store: WatermarkStore) -> dict[str, Callable[[], object]]:
    small, large = status_rows(PARTITIONS), status_rows(REPLICATIONS * PARTITIONS)
    work = Work(run_id="r", records=10, bytes=1000, seconds=1.0, at=NOW)
    return {
        f"a look at {PARTITIONS} partitions": lambda: store.record_standing(NAMES[1], FACTS, Lag(9, 60.0), small),
        f"a look at {len(large):,} partitions of one replication": lambda: store.record_standing(
            "all-in-one", FACTS, Lag(9, 60.0), large
        ),
        "the end of a run": lambda: store.record_work(NAMES[1], FACTS, work),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/store.db"
        store = open_store(url)
        fill(url)
        for name in NAMES:
            store.add_totals(name, dict.fromkeys(TOTALS, 1e6), "run", 0.5)
            store.record_standing(name, FACTS, Lag(9, 60.0), status_rows(PARTITIONS))
        print(f"{REPLICATIONS} replications, {REPLICATIONS * PARTITIONS:,} partitions, {REPLICATIONS * RUNS:,} runs,")
        print(f"{REPLICATIONS * RUNS * RANGES:,} ranges; medians of {TURNS} turns\n")
        print("| page | seconds | of the processor |\n| --- | --- | --- |")
        too_slow = []
        for what, act in pages_of(url, store).items():
            seconds, busy = measured(act)
            print(f"| {what} | {seconds:.3f} | {busy:.3f} |", flush=True)
            too_slow += [what] if seconds > LIMIT_SECONDS else []
        print("\n| what is written | seconds | of the processor |\n| --- | --- | --- |")
        for what, act in writes_of(store).items():
            seconds, busy = measured(act)
            print(f"| {what} | {seconds:.3f} | {busy:.3f} |", flush=True)
        reader = Reader(store=store, site=Site("/kafka-replication", ""), now=NOW)
        seconds, busy = measured(lambda: pages.partitions(reader, "all-in-one", "", 1))
        print(f"| the table of these partitions, read | {seconds:.3f} | {busy:.3f} |")
        file = Path(folder) / "store.db"
        if file.exists():
            rows = REPLICATIONS * 2_244
            print(f"\nThe file has {file.stat().st_size / 1e6:,.0f} MB, with {rows:,} samples.")
        store.close()
        if too_slow:
            sys.exit(f"slower than {LIMIT_SECONDS} s: {', '.join(too_slow)}")


if __name__ == "__main__":
    main()
