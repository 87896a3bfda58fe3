"""The quickstart, pasted into a shell line by line, in a folder like a fresh clone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stack import demo_data
from stack.folders import cache_folder
from stack.kafka_cluster import KafkaCluster
from tests.support.checker import check
from tests.support.clusters import Brokers

ROOT = Path(__file__).parents[2]
# In place of the demo, which takes minutes, the tests' clusters are there. Every other target is the real one.
WITHOUT_DEMO = """\
#!/bin/sh
[ "$*" = demo ] || exec {make} "$@"
"""
TOPIC, PARTITIONS = "demo.orders", demo_data.TOPICS["demo.orders"]


def pasted() -> str:
    """The blocks of the page that are marked as shell, in their order."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / "quickstart.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    return "\n".join(blocks)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The repository as it is here. What `make install` makes is borrowed, and new enough that nothing is installed."""
    clone = tmp_path / "clone"
    # plugins/.airflowignore keeps Airflow from taking each of our modules for a plugin of its own.
    ignored = shutil.ignore_patterns(".git", ".venv", ".state", ".hypothesis", ".*_cache", "__pycache__")
    shutil.copytree(ROOT, clone, ignore=ignored)
    (clone / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (clone / ".venv" / name).symlink_to(Path(sys.prefix) / name)
    (clone / ".venv" / ".installed").touch()
    return clone


def paste(lines: str, clone: Path, *path: str) -> subprocess.CompletedProcess[str]:
    """A new user's shell."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "KAFKA_"))}
    own = {
        "PATH": os.pathsep.join([*path, os.environ["PATH"]]),
        "KAFKA_REPLICATION_STATE": str(clone.parent / "state" / "of" / "mine"),
        "KAFKA_REPLICATION_CACHE": str(cache_folder()),
    }
    return subprocess.run(
        ["bash", "-eu"], input=lines, cwd=clone, env=inherited | own, capture_output=True, text=True, check=False
    )


def known(state: Path, **clusters: str) -> None:
    """As if the stack had started these clusters."""
    for name, bootstrap in clusters.items():
        (state / name).mkdir(parents=True)
        ports = [int(address.removeprefix("127.0.0.1:")) for address in bootstrap.split(",")]
        facts = {"cluster_id": "", "ports": ports, "controller_ports": ports}
        (state / name / "cluster.json").write_text(json.dumps(facts))


def assert_replicated(done: subprocess.CompletedProcess[str], source: str, target: str, store: Path) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count(f"store: sqlite:///{store}") == 4, "one line for each command"
    rows = [line for line in done.stdout.splitlines() if line.startswith(TOPIC) and "in sync" in line]
    assert len(rows) == PARTITIONS, done.stdout
    for partition in range(PARTITIONS):
        assert check(source, target, TOPIC, f"dr.{TOPIC}", partition).clean


def test_the_quickstart_works_as_it_is_written(
    source_cluster: Brokers, target_cluster: Brokers, clone: Path, tmp_path: Path
) -> None:
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    demo_data.create_topics(source)
    demo_data.produce(source, 1, 500)
    known(tmp_path / "state" / "of" / "mine", source=source, target=target)
    (tmp_path / "bin").mkdir()
    make = tmp_path / "bin" / "make"
    make.write_text(WITHOUT_DEMO.format(make=shutil.which("make")))
    make.chmod(0o755)
    done = paste(pasted(), clone, str(make.parent))
    assert_replicated(done, source, target, tmp_path / "state" / "of" / "mine" / "watermarks.db")


def test_make_status_cuts_no_path_where_a_terminal_is_narrow(clone: Path, tmp_path: Path) -> None:
    state = tmp_path / "state" / "of" / "mine"
    known(state, source="127.0.0.1:1", target="127.0.0.1:2")
    done = paste("COLUMNS=60 make status", clone)
    assert (done.returncode, "stopped" in done.stdout) == (2, True), "make's own code for a target that failed"
    for cluster in ("source", "target"):
        assert f"log {state / cluster / 'broker1.log'}\n" in done.stdout
    assert f" sqlite:///{state / 'watermarks.db'}\n" in done.stdout


@pytest.mark.slow
def test_make_demo_and_all_that_follows_it_work_as_they_are_written(clone: Path, tmp_path: Path) -> None:
    state = tmp_path / "state" / "of" / "mine"
    try:
        done = paste(pasted() + "\nmake status\n", clone)
        source, target = (KafkaCluster(side, state).bootstrap for side in ("source", "target"))
        assert_replicated(done, source, target, state / "watermarks.db")
        assert "every partition is verified" in done.stdout
    finally:
        down = paste("make down\nmake status\n", clone)
    assert down.returncode != 0 and "Nothing runs any more" in down.stdout
