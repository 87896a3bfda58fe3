"""requirements.lock is what the two requirements files ask for. No network: this compares what is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)( *; python_version [<>=]+ '[0-9.]+'$)?")


def pins(file: str) -> dict[str, set[str]]:
    """Normalised name and versions of every pin in a file; a universal lock may hold several versions of a name."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / file).read_text().splitlines():
        if match := PIN.match(line):
            found.setdefault(re.sub(r"[-_.]+", "-", match["name"]).lower(), set()).add(match["version"])
    return found


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt"])
def test_every_line_is_an_exact_pin_that_the_lock_holds(file: str) -> None:
    lines = [line for line in (ROOT / file).read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not PIN.fullmatch(line)] == []
    locked = pins("requirements.lock")
    assert {name: versions for name, versions in pins(file).items() if locked.get(name) != versions} == {}, (
        "run make lock"
    )


def test_every_locked_package_has_a_hash() -> None:
    blocks = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text().strip())
    assert len(blocks) > 100
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_the_lock_names_no_index_and_no_path_of_a_machine() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert re.findall(r"https?://|file:|--index|--extra|--find-links|(?:^|\s)/", text) == []


def test_every_direct_dependency_is_explained() -> None:
    chapter = (ROOT / "docs/installing.md").read_text().partition("\n## What each dependency is for\n")[2]
    explained = set(re.findall(r"^\| ([A-Za-z0-9-]+) \|", chapter.lower(), re.MULTILINE))
    asked = pins("requirements.txt").keys() | pins("requirements-dev.txt").keys()
    assert asked - explained == set()
    assert explained - asked - {"package", "what", "---"} == set()
