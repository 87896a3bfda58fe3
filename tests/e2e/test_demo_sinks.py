"""``make demo-sinks``, as somebody does it who has only the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stack.folders import cache_folder
from stack.hbase_server import HBaseServer
from stack.opensearch_server import OpenSearchServer

pytestmark = pytest.mark.slow


def test_both_targets_get_what_the_source_has_and_make_down_stops_them(tmp_path: Path) -> None:
    place = {"KAFKA_REPLICATION_STATE": str(tmp_path), "KAFKA_REPLICATION_CACHE": str(cache_folder())}

    def stack(command: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "stack", command]
        return subprocess.run(program, env=os.environ | place, capture_output=True, text=True, check=False)

    try:
        shown = stack("demo-sinks")
        assert shown.returncode == 0, shown.stdout + shown.stderr
        assert "both targets have what the source has" in shown.stdout
        assert '"topic": "demo.orders"' in shown.stdout, "a document names its record"
    finally:
        ended = stack("down")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert OpenSearchServer("opensearch", tmp_path).process is None
    assert HBaseServer("hbase", tmp_path).pids == []
