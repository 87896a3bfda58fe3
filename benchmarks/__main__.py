"""``make bench``: the tables of benchmarks/results/whole-runs-and-copying.md in Markdown on stdout, progress on stderr.

BENCH_ONLY=name,... chooses tables. REPEATS=n (default 3) turns are measured, after one that warms the brokers up; SCALE
(default 1) makes every topic smaller or larger. Ends with code 1 if a copy is not verified, or, after all tables, if a
process of ours needed more than MB (default 300).
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping

from benchmarks import copying, whole_runs
from kafka_replication.runtime import stopping

Largest = Mapping[str, float]  # what was measured, and the MB of its largest process: ours, or one of Airflow with ours
TABLES: Mapping[str, Callable[[], Largest]] = {
    "runs": whole_runs.large,
    "few": whole_runs.few,
    "small": whole_runs.small,
    "copy": copying.near,
    "brokers": copying.three_brokers,
    "distance": copying.distant,
    "tls": copying.secured,
}


def main() -> None:
    stopping.on_signals()  # so that no broker is left behind
    logging.getLogger("kafka_replication").setLevel(logging.ERROR)  # each run would warn of a single replica
    most = float(os.environ.get("MB", "300"))
    chosen = os.environ.get("BENCH_ONLY", "").split(",")
    names = list(TABLES) if chosen == [""] else chosen
    if unknown := set(names) - set(TABLES):
        sys.exit(f"BENCH_ONLY names {', '.join(sorted(unknown))}: the tables are {', '.join(TABLES)}")
    too_large: list[str] = []
    for name in names:
        started = time.monotonic()
        too_large += [f"{what} ({name}): {mb:.0f} MB" for what, mb in TABLES[name]().items() if mb > most]
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    if too_large:
        sys.exit("\n".join([f"a process needed more than {most:.0f} MB:", *too_large]))


if __name__ == "__main__":
    main()
