"""Reads YAML into plain values and remembers the line of every key.

Scalars follow YAML 1.2's core schema without floats: ``on``, ``yes``, ``1:30``, ``010``, ``0.6`` and times stay text.
Tags, aliases, merge keys and several documents in one file are refused.

Describes in words which values a key of a replication file takes, for error messages and the generated page.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from annotated_types import Ge, Le, MaxLen
from pydantic.fields import FieldInfo

from kafka_replication.config.sections import Section

Place = tuple[str | int, ...]
MAX_BYTES = 256 * 1024
MAX_DEPTH = 20  # the model needs 4; PyYAML and `Tree` recurse

_ALIAS = "alias"
_TAG = "tag "
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # below 2**63; longer ones, 010 and 1_000 stay text
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")  # possible as escapes in quotes
_WORDS: dict[str, bool | None] = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | {
    word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake at a line (from 1) of a file. ``place`` is the path of the key, or empty."""

    line: int
    place: Place
    text: str


@dataclass(slots=True)
class Tree:
    """A file's value, the line of each key and list item, and the mistakes in the YAML itself."""

    value: object = None
    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[Mistake] = field(default_factory=list)

    def line_of(self, place: Place) -> int:
        """The line of a key or item. If the file does not have it, the line of the nearest parent."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def built(self, node: yaml.Node, place: Place) -> object:
        """The value of this node, with the lines and problems of all that is in it."""
        self.lines.setdefault(place, _line(node))
        self._check(node, place)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.built(item, (*place, number)) for number, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return _resolve(node)

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, object]:
        values: dict[str, object] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._problem(key, place, "a key must be plain text, not a list or mapping")
                continue
            here = (*place, key.value)
            self._check(key, here)
            if key.value in values:
                self._problem(key, here, f"given twice; first in line {self.lines[here]}")
                continue
            self.lines[here] = _line(key)
            values[key.value] = self.built(value, here)
        return values

    def _check(self, node: yaml.Node, place: Place) -> None:
        if node.tag == _ALIAS:
            remedy = "write the value out, or put text that starts with * in quotes"
            self._problem(node, place, f"aliases (*{node.value}) are not supported; {remedy}")
        elif node.tag.startswith(_TAG):
            tag = node.tag.removeprefix(_TAG).replace("tag:yaml.org,2002:", "!!")
            self._problem(node, place, f"tags ({tag}) are not supported; put text that starts with ! in quotes")
        elif isinstance(node, yaml.ScalarNode) and _UNPRINTABLE.search(node.value):
            self._problem(node, place, "holds a control character or half a surrogate pair, which no key takes")

    def _problem(self, node: yaml.Node, place: Place, text: str) -> None:
        self.problems.append(Mistake(_line(node), place, text))


def read_tree(data: bytes) -> Tree:
    """Never raises: if ``data`` cannot be read, the tree's ``problems`` say why."""
    if len(data) > MAX_BYTES:
        return _unreadable(1, f"the file is larger than {MAX_BYTES} bytes; a replication needs a few hundred")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return _unreadable(line, f"byte {error.start} is not UTF-8; save the file as UTF-8")
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return _unreadable(line, f"not valid YAML: character #x{ord(text[error.position]):04x} is not allowed")
    try:
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        reason = ", ".join(filter(None, (error.context, error.problem)))
        return _unreadable(line, f"not valid YAML: {' '.join(reason.split())}")
    except (ValueError, OverflowError) as error:  # PyYAML lets these out for odd escapes and version numbers
        return _unreadable(loader.line + 1, f"not valid YAML: {error}")
    tree = Tree()
    if root is not None:
        tree.value = tree.built(root, ())
    return tree


def _unreadable(line: int, text: str) -> Tree:
    return Tree(problems=[Mistake(line, (), text)])


class _Loader(yaml.SafeLoader):
    """Composes nodes without constructing values. A node's tag marks what a file may not use."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            self.get_event()  # type: ignore[no-untyped-call]
            return yaml.ScalarNode(_ALIAS, event.anchor, event.start_mark, event.end_mark)
        if self.depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, f"nested more than {MAX_DEPTH} levels deep", event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        if node is not None and event.tag is not None:
            node.tag = _TAG + event.tag
        return node


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _resolve(node: yaml.ScalarNode) -> object:
    text = str(node.value)
    if node.style is not None:  # quoted or a block: always text
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    return _WORDS.get(text, text)


_PLAIN = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    datetime: "a time in RFC 3339",
    type(None): "null",
}


def fields_of(section: type[Section]) -> dict[str, FieldInfo]:
    """Key in the file -> field, in the model's order."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def section_of(field: FieldInfo) -> type[Section] | None:
    """The section below a key, or None if the key takes a plain value."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def field_at(root: type[Section], place: tuple[str | int, ...]) -> tuple[FieldInfo | None, type[Section]]:
    """The field at a key path and the section that contains it. The field is None if the section has no such key."""
    section = root
    field: FieldInfo | None = None
    for step in place:
        known = fields_of(section).get(str(step))
        if known is None:
            return None, section
        field = known
        inner = section_of(known)
        if inner is None:
            break
        if step != place[-1]:
            section = inner
    return field, section


def describe(field: FieldInfo) -> str:
    """The values that the field takes, for example ``a whole number from 1 to 900, or null``."""
    section = section_of(field)
    if section is not None:
        return f"a mapping with the keys {', '.join(fields_of(section))}"
    return _describe(field.annotation, tuple(field.metadata))


def _describe(kind: Any, metadata: tuple[Any, ...]) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        nested = (extra.metadata if isinstance(extra, FieldInfo) else [extra] for extra in args[1:])
        return _describe(args[0], metadata + tuple(chain.from_iterable(nested)))
    if origin in (Union, types.UnionType):
        return ", or ".join(_describe(member, metadata) for member in args)
    if origin is Literal:
        return " or ".join(map(str, args))
    if origin is tuple:
        return f"a list of {_describe(args[0], ())}"
    if origin is dict:
        return f"a mapping of text to {_describe(args[1], ())}" if args[1] is not Any else "a mapping"
    if isinstance(kind, type) and issubclass(kind, Section):
        return f"mappings with the keys {', '.join(fields_of(kind))}"
    return _PLAIN[kind] + "".join(_bounds(kind, metadata))


def _bounds(kind: Any, metadata: tuple[Any, ...]) -> Iterator[str]:
    low = next((bound.ge for bound in metadata if isinstance(bound, Ge)), None)
    high = next((bound.le for bound in metadata if isinstance(bound, Le)), None)
    longest = next((bound.max_length for bound in metadata if isinstance(bound, MaxLen)), None)
    if kind in (int, float) and low is not None:
        yield f" from {low} to {high}" if high is not None else f" of at least {low}"
    elif kind is str and longest is not None:
        yield f" of at most {longest} characters"
