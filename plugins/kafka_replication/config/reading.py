"""Loads replication files. An error names all mistakes of a file, with the line and key of each.

Turns pydantic's errors into sentences for the author of the file: what is allowed, and what the file has.

Reads the valid part of a replication file that has mistakes, so that its DAG keeps its schedule and reports them.

Nothing may be copied with it: a key that was left out has its default.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kafka_replication.config.model import COMBINATION, Replication
from kafka_replication.config.names import did_you_mean
from kafka_replication.config.yaml import MAX_BYTES, Mistake, Place, describe, field_at, fields_of, read_tree
from kafka_replication.model.errors import ConfigError

_USERINFO = re.compile(r"//[^/\s]*@")
_SHOWN = 80


def place_of(error: ErrorDetails) -> Place:
    """The key path of the error in the file. Pydantic adds ``[key]`` if the error concerns a mapping's key. An error
    about the whole file says itself which key it is about.
    """
    if error["type"] == COMBINATION:
        return (str(error["ctx"]["place"]),)
    return tuple(step for step in error["loc"] if step != "[key]")


def explain(error: ErrorDetails) -> str:
    """One line: what is wrong, what is allowed, and the value in the file unless it may be a secret."""
    place, kind = place_of(error), error["type"]
    field, section = field_at(Replication, place)
    if kind == COMBINATION:
        return str(error["ctx"]["text"])
    if kind == "extra_forbidden":
        allowed = list(fields_of(section))
        return "unknown key" + (did_you_mean(str(place[-1]), allowed) or f"; allowed: {', '.join(allowed)}")
    if kind == "missing" and field is not None:
        return f"required, but missing; it must be {describe(field)}"
    if kind == "value_error":
        text = str(error["ctx"]["error"])
        return text if isinstance(error["input"], Mapping) else _with_value(text, error["input"])
    if kind == "too_short":
        return "must name at least one"
    if kind == "string_too_long":
        return _with_value(f"must be at most {error['ctx']['max_length']} characters long", error["input"])
    if field is None or kind == "string_unicode":
        return _with_value(error["msg"], error["input"])
    if kind == "string_type":
        hint = "must be text; put it in quotes" if isinstance(error["input"], int) else "must be text"
        return _with_value(hint, error["input"])
    told = _with_value(f"must be {describe(field)}", error["input"])
    if kind == "literal_error" and isinstance(error["input"], str):
        told += did_you_mean(error["input"].lower(), re.findall(r"'([^']+)'", error["ctx"]["expected"]))
    return told


def _with_value(text: str, value: Any) -> str:
    return f"{text}; found {shown_value(value)}"


def shown_value(value: object) -> str:
    """The value as a message may show it: on one short line, without the user information of a URL."""
    if value is None or isinstance(value, bool):
        return {None: "nothing (null)", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "a list" if value else "an empty list"
    shown = ascii(_USERINFO.sub("//***@", value)) if isinstance(value, str) else str(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}... ({len(shown)} characters)"


UNREADABLE = "unreadable"
# The schedule of a DAG whose file has an unreadable schedule. A DAG that never runs would not report the mistake.
INSTEAD_OF_ITS_SCHEDULE = "@hourly"
_NEEDED: dict[str, Any] = {
    "source": {"connection": f"{UNREADABLE}_source"},
    "target": {"connection": f"{UNREADABLE}_target"},
    "topics": {"include": [UNREADABLE]},
}
# Each attempt leaves out at least one key. One that leaves out all but these is for sections that have a mistake only
# together.
_ATTEMPTS = 20
_KEPT = {"name", "schedule", "alerts", *_NEEDED}
_TOP = re.compile(rb"^(?=[^\s#])", re.MULTILINE)


def readable_part(data: bytes, name: str) -> Replication | None:
    """The replication without the keys that cannot be read. ``name`` is its name if the name in the file cannot be
    read.

    None if there is no name that a replication may have.
    """
    written, values = _keys(data)
    needed = {"name": name, **_NEEDED}
    for _ in range(_ATTEMPTS):
        try:
            rest = Replication.model_validate(values)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                _leave_out(values, place_of(details), needed if details["type"] == "missing" else {})
        else:
            is_lost = "schedule" not in values and difflib.get_close_matches("schedule", written, n=1)
            return rest.model_copy(update={"schedule": INSTEAD_OF_ITS_SCHEDULE}) if is_lost else rest
    return None


def _keys(data: bytes) -> tuple[list[str], dict[str, Any]]:
    """The top-level keys as they are written, and the values that are valid YAML."""
    whole = read_tree(data)
    if isinstance(whole.value, dict):
        return list(whole.value), dict(whole.value)
    written: list[str] = []
    values: dict[str, Any] = {}
    for block in _TOP.split(data):
        written.append(block.partition(b":")[0].decode(errors="replace").strip())
        part = read_tree(block).value
        values |= part if isinstance(part, dict) else {}
    return written, values


def _leave_out(values: dict[str, Any], place: Place, needed: dict[str, Any]) -> None:
    """Remove the key at ``place``, or put the ``needed`` value there. A list with a mistake is removed as a whole."""
    if place[0] in needed:
        values[str(place[0])] = needed[str(place[0])]
        return
    inner: Any = values
    for step in place[:-1]:
        if not isinstance(inner.get(step), dict):
            break
        inner = inner[step]
    else:
        step = place[-1]
    if step in inner:
        del inner[step]
    elif place[0] in values:  # a rule about a whole section, or about a key that is missing in it
        del values[str(place[0])]
    else:  # the default of a section does not fit another one
        for key in values.keys() - _KEPT:
            del values[key]


SUFFIXES = (".yaml", ".yml")
REMEDY = "correct the file; docs/configuration.md explains every key"
MINIMAL = "a replication needs at least name, source, target and topics"


@dataclass(frozen=True, slots=True)
class Broken:
    """A file with mistakes. ``rest`` is the readable part; None if there is none, or if its name is taken."""

    error: ConfigError
    rest: Replication | None = None


def load_replication(path: Path) -> Replication:
    """The replication in one file.

    Raises ConfigError, and nothing else, for a file that cannot be read or has mistakes. ``what`` then has one line for
    each mistake: ``FILE:LINE: key 'copy.chunk_record': unknown key; allowed: ...``.
    """
    return parse_replication(_read(path), str(path))


def parse_replication(data: bytes, origin: str) -> Replication:
    """The replication in these bytes. Messages call them ``origin``. Raises ConfigError."""
    tree = read_tree(data)
    problems = list(tree.problems)
    if not problems and not isinstance(tree.value, dict):
        said, line = f"must be a mapping (key: value); found {shown_value(tree.value)}", tree.line_of(())
        if tree.value is None:
            said, line = "the file is empty", 1
        problems.append(Mistake(line, (), f"{said}; {MINIMAL}"))
    if isinstance(tree.value, dict):  # even with YAML problems, so that one error shows every mistake
        try:
            replication = Replication.model_validate(tree.value)
        except ValidationError as error:
            problems += [Mistake(tree.line_of(place), place, text) for place, text in _explained(error)]
        else:
            if not problems:
                return replication
    raise _error(origin, problems)


def load_all(folder: Path) -> tuple[dict[str, Replication], list[Broken]]:
    """Every replication of a folder by name, in the order of the file names, and what is broken.

    Never raises. Files that start with a dot, and folders inside ``folder``, are ignored. If two files have the same
    replication name, the first by file name is loaded and the other one is an error. So a new file never changes a
    replication that already runs.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and not path.name.startswith("."))
    except OSError as error:
        return {}, [
            Broken(
                ConfigError(f"{folder}: cannot be listed: {error.strerror}", "create the folder, or give another one")
            )
        ]
    loaded: dict[str, Replication] = {}
    origins: dict[str, Path] = {}
    broken: list[Broken] = []
    for path in paths:
        data = b""
        try:
            data = _read(path)
            replication = parse_replication(data, str(path))
        except ConfigError as error:
            broken.append(Broken(error, readable_part(data, path.stem) if data else None))
            continue
        if earlier := origins.get(replication.name):
            line = read_tree(data).line_of(("name",))
            what = f"{path}:{line}: key 'name': '{replication.name}' is already the name of {earlier}"
            broken.append(Broken(ConfigError(what, "give one of the two files another name")))
            continue
        loaded[replication.name] = replication
        origins[replication.name] = path
    return loaded, _with_names_of_their_own(broken, set(loaded))


def _with_names_of_their_own(broken: list[Broken], taken: set[str]) -> list[Broken]:
    own = []
    for each in broken:
        own.append(each if each.rest is None or each.rest.name not in taken else Broken(each.error))
        taken |= {each.rest.name} if each.rest else set()
    return own


def _explained(error: ValidationError) -> list[tuple[Place, str]]:
    """Place and text of each mistake. Of a list that is too short because of mistakes, only these are named."""
    every = error.errors(include_url=False)
    items = {place_of(details)[:-1] for details in every}
    return [
        (place_of(details), explain(details))
        for details in every
        if details["type"] != "too_short" or place_of(details) not in items
    ]


def _read(path: Path) -> bytes:
    """Read at most one byte more than is allowed, so that a huge file costs nothing."""
    try:
        if path.is_dir():
            raise ConfigError(f"{path}: is a folder, not a file", "name one replication file")
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: is not a regular file", "name one replication file")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}", "check the path and its permissions") from None


def _error(origin: str, problems: list[Mistake]) -> ConfigError:
    lines = []
    for problem in sorted(problems, key=lambda problem: problem.line):
        # Keys and values are the user's text, and a terminal must show them on one line.
        text = (char if char.isprintable() else ascii(char)[1:-1] for char in _key(problem.place) + problem.text)
        lines.append(f"{origin}:{problem.line}: {''.join(text)}")
    return ConfigError("\n".join(lines), REMEDY)


def _key(place: Place) -> str:
    """``key 'topics.include[1]': ``, or nothing for the file as a whole."""
    dotted = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")
    return f"key '{dotted[:200]}': " if place else ""
