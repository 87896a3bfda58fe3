"""What a target written elsewhere imports: the public interface has all of it, and the example takes nothing else."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_replication import api
from kafka_replication.api import targets
from tests.conformance import ground

ROOT = Path(__file__).parents[2]
PUBLIC = ("kafka_replication.api",)
# What is at keys: `target.shape` is for the package's own targets.
OURS_ALONE = {"Found", "Sent"}


def imported(file: Path) -> Iterator[str]:
    """The modules of this package that a file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield from [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            yield from [name.name for name in node.names]


def is_public(name: str) -> bool:
    return not name.startswith("kafka_replication") or name.startswith(tuple(f"{module}." for module in PUBLIC))


@pytest.mark.parametrize("file", sorted((ROOT / "tests/folder_target").glob("*.py")), ids=lambda file: str(file.name))
def test_the_example_imports_the_public_interface_alone(file: Path) -> None:
    assert [name for name in imported(file) if not is_public(name)] == []


def test_no_name_is_in_two_places_and_each_type_says_what_it_is() -> None:
    assert set(api.__all__).isdisjoint(targets.__all__)
    values = [getattr(targets, name) for name in targets.__all__]
    assert [value for value in values if isinstance(value, type) and not value.__doc__] == []


def test_the_pages_say_for_what_each_name_is() -> None:
    page = (ROOT / "docs/api.md").read_text() + (ROOT / "docs/own-target.md").read_text()
    names = {*targets.__all__, *api.__all__} - {"documents"}
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", page)) == []


def signatures(kind: type) -> Iterator[Any]:
    """The types in the signatures of an interface, and of the fields of a value."""
    if dataclasses.is_dataclass(kind):
        yield from typing.get_type_hints(kind).values()
    for base in kind.__mro__:
        for member in vars(base).values() if base.__module__.startswith("kafka_replication") else ():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if inspect.isfunction(function) and (function.__name__ in ("__call__", "__init__") or is_open(function)):
                yield from typing.get_type_hints(function).values()


def is_open(function: Any) -> bool:
    return not function.__name__.startswith("_")


def types_in(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        yield annotation
    for inner in typing.get_args(annotation):
        for part in inner if isinstance(inner, list) else [inner]:
            yield from types_in(part)


def needed(*begin: type) -> set[str]:
    """The names of the package's types that these interfaces name, and those that the interfaces among them name."""
    found, left = dict[str, type](), list(begin)
    while left:
        kind = left.pop()
        if kind.__name__ in found or not kind.__module__.startswith("kafka_replication"):
            continue
        found[kind.__name__] = kind
        if kind is api.TargetSettings or getattr(kind, "_is_protocol", False) or inspect.isabstract(kind):
            left += [one for annotation in signatures(kind) for one in types_in(annotation)]
    return set(found)


def test_each_type_in_the_signatures_of_a_target_is_public() -> None:
    public = {getattr(module, name) for module in (api, targets) for name in module.__all__ if name != "documents"}
    names = {value.__name__ for value in public if isinstance(value, type)}
    wanted = needed(api.Target, api.TargetKind, ground.Ground, targets.RecordStore, targets.Records)
    assert {"Topic", "SinkSession", "Receipts", "TransactionPort"} <= wanted, "the test looks at the parts of a target"
    assert wanted - names - OURS_ALONE - {"Ground"} == set()
