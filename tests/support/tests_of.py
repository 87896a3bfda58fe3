"""Finds the tests of a module: ``python -m tests.support.tests_of plugins/kafka_replication/runs/mending.py``.

First those that have its name or import it. For a module that only others of the package use: those of the modules
that import it, by the shortest way.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "plugins"
PACKAGE = "kafka_replication"


def name_of(file: Path) -> str:
    """The dotted name of a module of the package."""
    return ".".join(file.resolve().relative_to(PLUGINS).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> Mapping[str, Path]:
    """The modules of the package."""
    return {name_of(file): file for file in sorted((PLUGINS / PACKAGE).rglob("*.py"))}


@cache
def test_files() -> tuple[Path, ...]:
    return tuple(sorted((ROOT / "tests").rglob("test_*.py")))


def imported(file: Path) -> Iterator[str]:
    """The modules of the package that a file imports, also inside of functions."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names} & modules().keys()
            yield from names or {node.module} & modules().keys()
        elif isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & modules().keys()


def _importers(files: Iterable[Path]) -> Mapping[str, list[Path]]:
    found = defaultdict[str, list[Path]](list)
    for file in files:
        for name in set(imported(file)):
            found[name].append(file)
    return found


@cache
def _tests_by_import() -> Mapping[str, list[Path]]:
    return _importers(test_files())


@cache
def _users() -> Mapping[str, list[Path]]:
    return _importers(modules().values())


def own_tests(module: str) -> list[Path]:
    """The tests that are found without this: by ``test_<name>.py``, by a room in front of the name, or by the import."""
    *rooms, name = module.split(".")
    names = {f"test_{name}", *(f"test_{room}_{name}" for room in rooms)}
    return sorted({*(file for file in test_files() if file.stem in names), *_tests_by_import().get(module, ())})


def tests_of(module: str) -> tuple[list[Path], list[str]]:
    """The nearest tests, and the modules by which they use it: none for its own tests."""
    layer, seen = [module], {module}
    while layer:
        if tests := sorted({test for name in layer for test in own_tests(name)}):
            return tests, [name for name in layer if name != module and own_tests(name)]
        layer = [name for name in _users_of(layer) if name not in seen]
        seen.update(layer)
    return [], []


def _users_of(names: Collection[str]) -> list[str]:
    return sorted({name_of(file) for name in names for file in _users().get(name, ())})


def main(files: Iterable[str]) -> None:
    for file in files:
        tests, through = tests_of(name_of(Path(file)))
        print(f"{file}, through {', '.join(through)}:" if through else f"{file}:")
        for test in tests:
            print(f"  {test.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
