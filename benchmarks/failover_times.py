"""``python -m benchmarks.failover_times``: ``kafka-replication failover`` with the source killed, from start to end.

PARTITIONS (default 100) of 100 records each are copied by a run before. The dry run is measured, then ``--apply``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from benchmarks import clusters
from benchmarks.tables import heading, row
from benchmarks.whole_runs import Stage, produce
from benchmarks.workload import create
from kafka_replication.runtime import stopping

EACH, TOPIC = 100, "given-up"


def main() -> None:
    stopping.on_signals()  # so that no broker is left behind
    partitions = int(os.environ.get("PARTITIONS", "100"))
    with clusters.plain() as pair:
        stage, source = Stage(pair), pair.clusters[0]
        create(source.bootstrap, TOPIC, partitions)
        produce(source.bootstrap, TOPIC, partitions, EACH)
        file = stage.file(TOPIC, TOPIC)
        stage.terminal(file, partitions * EACH)
        source.kill()
        heading(("failover, the source is killed", "partitions", "sealed", "seconds"))
        for what, options in (("dry run", ()), ("`--apply`", ("--apply",))):
            line = [sys.executable, "-m", "kafka_replication.cli", "failover", str(file), "--json", *options]
            began = time.monotonic()
            done = subprocess.run(line, env=stage.environment(), capture_output=True, text=True, check=False)
            seconds = time.monotonic() - began
            if done.returncode:
                sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
            seals = [one["seal"] for one in json.loads(done.stdout)["partitions"]]
            row((what, len(seals), sum(seal is not None for seal in seals), seconds))


if __name__ == "__main__":
    main()
