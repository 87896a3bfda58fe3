"""Docstrings begin with a verb or a noun that says what a thing is, because a question has to be read twice."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "plugins" / "kafka_replication"
QUESTION = re.compile(r"(What|Whether|Why|How|Where|When|Who|Which)\b")


def test_no_docstring_begins_with_a_question() -> None:
    files = list(PACKAGE.rglob("*.py"))
    assert len(files) > 200
    assert [text for file in files for text in questions(file)] == []


def questions(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if QUESTION.match(text):
                yield f"{file.relative_to(PACKAGE)}: {text.splitlines()[0]}"
