"""What Spark's Python processes import: each worker pays for it, and each executor has to have it installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.spark.jobs import NEEDED, NEEDED_FOR_BATCHES
from kafka_replication.spark.preloaded import PRELOADED
from tests.spark.pythons import WITHOUT

FOREIGN = {"airflow", "alembic", "pandas", "pyarrow", "rich", "sqlalchemy", "typer"}
ROOT = Path(__file__).parents[2]
# deploy/spark.Dockerfile; PySpark is there anyway
INSTALLED = {"confluent_kafka", "jmespath", "pydantic", "tenacity", "xxhash"}
THEIRS = {"annotated_types", "pydantic_core", "typing_extensions", "typing_inspection"}  # what those bring
PROGRAM = """
import importlib, json, sys
before = set(sys.modules)
for name in ("kafka_replication.spark.worker", "kafka_replication.kafka.read_back", *{needed!r}):
    importlib.import_module(name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


# What PySpark's daemon does before it forks; then its threads, and all modules.
DAEMON = """
import json, sys
{first}
import psutil
from kafka_replication.spark import preloaded
preloaded.preload()
print(json.dumps([psutil.Process().num_threads(), sorted(sys.modules)]))
"""


def said(program: str) -> Any:
    """What a fresh Python says as JSON."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT / "plugins", check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def imported() -> list[str]:
    return list(said(PROGRAM.format(needed=NEEDED)))


def test_a_worker_imports_what_executors_have_and_nothing_of_the_driver() -> None:
    modules = imported()
    outside = {name.split(".")[0] for name in modules} - set(sys.stdlib_module_names) - {"kafka_replication"}
    assert {name for name in outside if not name.startswith("_")} - THEIRS == INSTALLED
    rooms = {name.split(".")[1] for name in modules if name.startswith("kafka_replication.")}
    assert rooms.isdisjoint({"cli", "orchestration", "runs", "store", "web"})
    assert not {"kafka_replication.spark.driver", "kafka_replication.spark.submit"} & set(modules)


def test_the_driver_imports_nothing_large_that_it_does_not_use() -> None:
    modules = said("import json, sys; import kafka_replication.spark.driver; print(json.dumps(sorted(sys.modules)))")
    assert FOREIGN.isdisjoint(name.split(".")[0] for name in modules)
    rooms = {name.split(".")[1] for name in modules if name.startswith("kafka_replication.")}
    assert rooms.isdisjoint({"cli", "kafka", "orchestration", "runs", "store", "web"})


def test_the_daemon_has_all_that_a_worker_needs_and_no_thread_before_it_forks() -> None:
    threads, modules = said(DAEMON.format(first=""))
    assert threads == 1, "a fork keeps one thread only, and the locks of all"
    assert {*PRELOADED, *NEEDED} <= set(modules)
    assert FOREIGN.isdisjoint(name.split(".")[0] for name in modules)


@pytest.mark.parametrize("module", ["confluent_kafka", "pydantic", "xxhash", "kafka_replication.spark.worker"])
def test_the_daemon_lives_without_a_module_so_that_a_worker_can_name_it(module: str) -> None:
    _, modules = said(DAEMON.format(first=WITHOUT.format(module=module)))
    assert module not in modules and "pyspark.worker" in modules


def test_the_daemon_lives_with_a_module_that_raises_anything() -> None:
    """A library of another machine raises OSError, for example."""
    raising = WITHOUT.format(module="xxhash").replace("ModuleNotFoundError(", "OSError(").replace(", name=name)", ")")
    _, modules = said(DAEMON.format(first=raising))
    assert "xxhash" not in modules


def test_the_batch_engine_does_not_touch_hypothesis_where_that_is_installed(tmp_path: Path) -> None:
    """kio does so if it can: it makes a folder where the process was started."""
    program = f"import sys, {NEEDED_FOR_BATCHES[-1]}; print('hypothesis.strategies' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "plugins")},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "False" and list(tmp_path.iterdir()) == []
