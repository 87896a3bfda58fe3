"""Reads YAML into plain values and remembers the line of every key: what a configuration file needs, and no more.

Scalars follow YAML 1.2's core schema without floats, so ``on``, ``yes``, ``1:30``, ``010``, ``0.6`` and times stay the
text that was written. Tags, aliases, merge keys and several documents have no meaning here and are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

Place = tuple[str | int, ...]
MAX_BYTES = 256 * 1024
MAX_DEPTH = 20  # the model needs 4; the reader recurses

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # below 2**63; longer ones, 010 and 1_000 stay text
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")  # possible as escapes in quotes
_WORDS: dict[str, bool | None] = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | {
    word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong at one line (from 1) of a file; ``place`` is the key it concerns, empty for none."""

    line: int
    place: Place
    text: str


@dataclass(slots=True)
class Tree:
    """A file's value, the line of every key and list item in it, and what is wrong with the YAML itself."""

    value: object = None
    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, place: Place) -> int:
        """The line of a key or item, or of the nearest one around it that the file has."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


class _Fatal(Exception):
    """Reading cannot go on after this problem."""

    def __init__(self, line: int, place: Place, text: str) -> None:
        super().__init__(text)
        self.problem = Problem(line, place, text)


def read_tree(data: bytes) -> Tree:
    """Never raises: whatever keeps ``data`` from being read is in the tree's ``problems``."""
    tree = Tree()
    if len(data) > MAX_BYTES:
        tree.problems.append(
            Problem(1, (), f"the file is larger than {MAX_BYTES} bytes; a replication needs a few hundred")
        )
        return tree
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        tree.problems.append(Problem(line, (), f"byte {error.start} is not UTF-8; save the file as UTF-8"))
        return tree
    try:
        _Reader(text, tree).read()
    except _Fatal as fatal:
        tree.problems.append(fatal.problem)
    except yaml.YAMLError as error:
        tree.problems.append(_syntax_problem(error, text))
    return tree


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    line, reason = 1, str(error)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        line, reason = error.problem_mark.line + 1, ", ".join(filter(None, (error.context, error.problem)))
    elif isinstance(error, yaml.reader.ReaderError):
        line, reason = (
            text.count("\n", 0, error.position) + 1,
            f"character #x{ord(text[error.position]):04x} is not allowed",
        )
    return Problem(line, (), f"not valid YAML: {' '.join(reason.split())}")


class _Reader:
    """Walks the parser's events once, building values and noting lines."""

    def __init__(self, text: str, tree: Tree) -> None:
        self._loader = yaml.SafeLoader(text)  # for its events only: nothing is constructed
        self._tree = tree

    def _next(self) -> Event:
        try:
            event: Event = self._loader.get_event()  # type: ignore[no-untyped-call]
            return event
        except (ValueError, OverflowError) as error:  # PyYAML lets these out for odd escapes and version numbers
            raise _Fatal(self._loader.line + 1, (), f"not valid YAML: {error}") from None

    def read(self) -> None:
        self._next()  # the stream's start
        if isinstance(self._next(), DocumentStartEvent):
            self._tree.value = self._node(self._next(), ())
            self._next()  # the document's end
            if isinstance(second := self._next(), DocumentStartEvent):
                raise _Fatal(_line(second), (), "a second document starts here; one file holds one replication")

    def _node(self, event: Event, place: Place) -> object:
        self._tree.lines.setdefault(place, _line(event))
        self._refuse_extras(event, place)
        if len(place) > MAX_DEPTH:
            raise _Fatal(_line(event), place[:3], f"nested more than {MAX_DEPTH} levels deep")
        if isinstance(event, MappingStartEvent):
            return self._mapping(place)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(place)
        assert isinstance(event, ScalarEvent)
        return _resolve(event)

    def _refuse_extras(self, event: Event, place: Place) -> None:
        if isinstance(event, AliasEvent):
            raise _Fatal(
                _line(event),
                place,
                f"aliases (*{event.anchor}) are not supported; write the value out, or put text that starts with * in"
                " quotes",
            )
        if isinstance(event, ScalarEvent) and _UNPRINTABLE.search(event.value):
            self._tree.problems.append(
                Problem(_line(event), place, "holds a control character or half a surrogate pair, which no key takes")
            )
        if isinstance(event, NodeEvent) and (tag := getattr(event, "tag", None)) is not None:
            text = (
                f"tags ({tag.replace('tag:yaml.org,2002:', '!!')}) are not supported; put text that starts with ! in"
                " quotes"
            )
            self._tree.problems.append(Problem(_line(event), place, text))

    def _mapping(self, place: Place) -> dict[str, object]:
        found: dict[str, object] = {}
        while not isinstance(event := self._next(), MappingEndEvent):
            if not isinstance(event, ScalarEvent):
                self._refuse_extras(event, place)
                raise _Fatal(_line(event), place, "a key must be plain text, not a list or mapping")
            here = (*place, event.value)
            self._refuse_extras(event, here)
            if event.value in found:
                self._tree.problems.append(
                    Problem(_line(event), here, f"given twice; first in line {self._tree.lines[here]}")
                )
                self._node(self._next(), here)
                continue
            self._tree.lines[here] = _line(event)
            found[event.value] = self._node(self._next(), here)
        return found

    def _sequence(self, place: Place) -> list[object]:
        found: list[object] = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            found.append(self._node(event, (*place, len(found))))
        return found


def _line(event: Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _resolve(event: ScalarEvent) -> object:
    text = str(event.value)
    if event.style is not None:  # quoted or a block: always text
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    return _WORDS.get(text, text)
