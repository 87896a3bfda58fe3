"""A loop of franz-go, compiled from the folder ``go``, as a peer of a copy. It verifies nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from benchmarks.clusters import Pair
from benchmarks.usage import Usage, Used, until_ended
from benchmarks.workload import PARTITIONS
from stack.folders import cache_folder

NAME = "loop of franz-go"


@cache
def program() -> Path | None:
    """The compiled program; None where there is no Go."""
    if (go := shutil.which("go")) is None:
        print("no Go is installed: franz-go is left out", file=sys.stderr)
        return None
    made = cache_folder() / "franz-go-loop"
    subprocess.run([go, "build", "-o", str(made), "."], cwd=Path(__file__).parent / "go", check=True)
    return made


def copies(pair: Pair) -> bool:
    """Whether it is there, and can reach these clusters: it knows no login."""
    return program() is not None and not any("security.protocol" in side for side in (pair.source, pair.target))


def start_to_end(pair: Pair, topic: str, records: int, name: str) -> Used:
    """Copy a whole topic to ``name.topic``, from the start of the program to its end. There has to be a `program`."""
    to = f"{name}.{topic}"
    pair.admin.create_topics([NewTopic(to, PARTITIONS, pair.replicas)])[to].result(30)
    sides = {"source": pair.source["bootstrap.servers"], "target": pair.target["bootstrap.servers"]}
    process = subprocess.Popen([str(program())], stdin=subprocess.PIPE, text=True)
    with Usage([process.pid], pair.brokers) as usage:
        assert process.stdin is not None
        process.stdin.write(json.dumps({**sides, "topic": topic, "to": to, "records": records}))
        process.stdin.close()
        until_ended(process.pid)
    if process.wait() or pair.count(to) != records:
        raise SystemExit(f"franz-go ended with {process.returncode}, and not all of {records:,} records are in {to}")
    return usage.used
