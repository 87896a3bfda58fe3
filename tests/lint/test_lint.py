"""`make lint` as tests, so that the tools run beside the other tests and not before them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("tool", ["types", "imports", "style"])
def test_lint(tool: str) -> None:
    """What `make lint` runs, one tool a test."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    asked = ["make", "--no-print-directory", f"lint-{tool}"]
    done = subprocess.run(asked, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
