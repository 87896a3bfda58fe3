"""Docstrings begin with a verb or a noun that says what a thing is, because a question has to be read twice."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "plugins" / "kafka_replication"
QUESTION = re.compile(r"(What|Whether|Why|How|Where|When|Who|Which)\b")
# Folders and files that still have such docstrings.
NOT_YET = (
    "copying/protocol.py",
    "kafka/engines",
    "kafka/ledger",
    "kafka/quarantine",
    "kafka/read",
    "kafka/read_back",
    "kafka/write",
    "ledger",
    "model/failures.py",
    "orchestration/task_run.py",
    "reporting/audit.py",
    "runs",
    "sinks",
    "transforms.py",
    "verification",
    "watermarks/failed.py",
)
DONE = ("runs/repair", "runs/watch")  # of the folders above


def test_no_docstring_begins_with_a_question() -> None:
    files = [file for file in PACKAGE.rglob("*.py") if _is_done(file.relative_to(PACKAGE))]
    assert len(files) > 150
    assert [text for file in files for text in questions(file)] == []


def _is_done(file: Path) -> bool:
    return any(map(file.is_relative_to, DONE)) or not any(map(file.is_relative_to, NOT_YET))


def questions(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if QUESTION.match(text):
                yield f"{file.relative_to(PACKAGE)}: {text.splitlines()[0]}"
