"""Reads the valid part of a replication file that has mistakes, so that its DAG keeps its schedule and reports them.

Nothing may be copied with it: a key that was left out has its default.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

from pydantic import ValidationError

from kafka_replication.config.model import Replication
from kafka_replication.config.reading.messages import place_of
from kafka_replication.config.reading.yaml import Place, read_tree

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
