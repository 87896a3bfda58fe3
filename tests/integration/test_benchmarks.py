"""A benchmark that is run once in a while still runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_ledger_s_history() -> None:
    """Few partitions and little history. What it prints of speed means nothing here."""
    small = {"TOPICS": "2", "SIZES": "0,200", "REPEATS": "2"}
    line = [sys.executable, "-m", "benchmarks.ledger_history"]
    done = subprocess.run(line, cwd=ROOT, env={**os.environ, **small}, capture_output=True, text=True, check=False)
    rows = [row.split()[:2] for row in done.stdout.splitlines()[1:]]
    assert rows == [[kind, size] for kind in ("idle", "work", "copier") for size in ("0", "200")], done.stderr[-3000:]
