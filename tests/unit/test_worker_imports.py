"""What a Spark Python worker imports: each worker process pays for it, and each executor has to have it installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from kafka_replication.spark.stages import NEEDED

ROOT = Path(__file__).parents[2]
INSTALLED = {"confluent_kafka", "pydantic", "tenacity", "xxhash"}  # deploy/spark.Dockerfile; PySpark is there anyway
THEIRS = {"annotated_types", "pydantic_core", "typing_extensions", "typing_inspection"}  # what those bring
PROGRAM = """
import importlib, json, sys
before = set(sys.modules)
for name in ("kafka_replication.spark.worker", "kafka_replication.kafka.segment_reader", *{needed!r}):
    importlib.import_module(name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imported() -> list[str]:
    command = [sys.executable, "-c", PROGRAM.format(needed=NEEDED)]
    done = subprocess.run(command, cwd=ROOT / "plugins", check=True, capture_output=True, text=True)
    return list(json.loads(done.stdout))


def test_a_worker_imports_what_executors_have_and_nothing_of_the_driver() -> None:
    modules = imported()
    outside = {name.split(".")[0] for name in modules} - set(sys.stdlib_module_names) - {"kafka_replication"}
    assert {name for name in outside if not name.startswith("_")} - THEIRS == INSTALLED
    rooms = {name.split(".")[1] for name in modules if name.startswith("kafka_replication.")}
    assert rooms.isdisjoint({"cli", "orchestration", "runs", "store", "web"})
    assert not {"kafka_replication.spark.stages", "kafka_replication.spark.submit"} & set(modules)
