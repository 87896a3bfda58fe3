"""Pythons for executors that lack something."""

from __future__ import annotations

import sys
from pathlib import Path

WITHOUT = """\
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
"""


def python_without(module: str, folder: Path) -> Path:
    """A Python that cannot import ``module``."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WITHOUT.format(module=module))
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python
