"""Loads replication files. An error names all mistakes of a file, with the line and key of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from kafka_replication.config.model import Replication
from kafka_replication.config.reading.messages import explain, place_of, shown_value
from kafka_replication.config.reading.salvage import readable_part
from kafka_replication.config.reading.yaml import MAX_BYTES, Mistake, Place, Tree, read_tree
from kafka_replication.model.errors import ConfigError

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
        problems.append(_no_mapping(tree))
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


def _no_mapping(tree: Tree) -> Mistake:
    if tree.value is None:
        return Mistake(1, (), f"the file is empty; {MINIMAL}")
    return Mistake(tree.line_of(()), (), f"must be a mapping (key: value); found {shown_value(tree.value)}; {MINIMAL}")


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
