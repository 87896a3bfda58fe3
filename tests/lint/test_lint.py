"""`make lint` as tests, so that the tools run beside the other tests and not before them."""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator
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


def test_no_file_is_longer_than_400_lines() -> None:
    folders = ("plugins", "stack", "dags", "spark_jobs", "benchmarks", "tests")
    lengths = {
        str(file): len(file.read_text().splitlines()) for name in folders for file in (ROOT / name).rglob("*.py")
    }
    assert len(lengths) > 500
    assert {file: lines for file, lines in lengths.items() if lines > 400} == {}


def test_no_data_class_takes_more_than_four_fields_by_position() -> None:
    """Two of the same type would be exchanged unnoticed."""
    files = [file for folder in ("plugins", "stack") for file in (ROOT / folder).rglob("*.py")]
    classes = {f"{file.name}: {name}": count for file in files for name, count in by_position(file.read_text())}
    assert len(classes) > 100
    assert [name for name, count in classes.items() if count > 4] == []


def by_position(code: str) -> Iterator[tuple[str, int]]:
    """Each data class, and how many fields its constructor takes by position."""
    for node in ast.walk(ast.parse(code)):
        decorators = map(ast.unparse, node.decorator_list) if isinstance(node, ast.ClassDef) else ()
        for decorator in decorators:
            if isinstance(node, ast.ClassDef) and decorator.startswith("dataclass"):
                fields = [ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign)]
                named = 0 if "kw_only=True" in decorator else [*fields, "_: KW_ONLY"].index("_: KW_ONLY")
                yield node.name, sum("ClassVar" not in each and "init=False" not in each for each in fields[:named])
