"""The quickstart, pasted into a shell line by line, in a folder like a fresh clone. Only ``make`` is replaced: instead of
the demo's stack it gives the tests' clusters.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from stack import demo_data
from stack.airflow_standalone import AirflowSettings
from stack.terminal import exports
from tests.support.checker import check
from tests.support.clusters import Brokers

ROOT = Path(__file__).parents[2]
MAKE = """\
#!/bin/sh
case "$*" in
  demo) echo "the demo is there" ;;
  "-s env") cat "{folder}/exports" ;;
  *) echo "make $*: not in the quickstart" >&2; exit 2 ;;
esac
"""
TOPIC, PARTITIONS = "demo.orders", demo_data.TOPICS["demo.orders"]


def pasted() -> str:
    """The blocks of the page that are marked as shell, in their order."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / "quickstart.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    return "\n".join(blocks)


def test_the_quickstart_works_as_it_is_written(
    source_cluster: Brokers, target_cluster: Brokers, tmp_path: Path
) -> None:
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    demo_data.create_topics(source)
    demo_data.produce(source, 1, 500)
    (tmp_path / "dags" / "replications").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "make").write_text(MAKE.format(folder=tmp_path))
    (tmp_path / "bin" / "make").chmod(0o755)
    settings = AirflowSettings(source, target, f"sqlite:///{tmp_path}/store.db")
    (tmp_path / "exports").write_text("\n".join(exports(settings)))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "KAFKA_"))}
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-eu"],
        input=pasted(),
        cwd=tmp_path,
        env={**inherited, "PATH": path, "PYTHONPATH": str(ROOT / "plugins")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count(f"store: sqlite:///{tmp_path}/store.db") == 4, "one line for each command"
    rows = [line for line in done.stdout.splitlines() if line.startswith(TOPIC)]
    states = [line for line in rows if "in sync" in line]
    assert len(states) == PARTITIONS, done.stdout
    for partition in range(PARTITIONS):
        assert check(source, target, TOPIC, f"dr.{TOPIC}", partition).clean
    assert (Path(sys.executable).parent / "kafka-replication").exists()
