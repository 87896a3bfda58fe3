"""The fields that the forms of several DAGs have.

Airflow's page does not send a field that is empty, unless its type allows null; an emptied field is null. The parser of
the command line reads the values, so that a person sees its messages. A pattern in the form would be answered with the
schema instead. A field without a type is one line of text that takes anything.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from kafka_replication.config import Replication
from kafka_replication.config.values.names import is_pattern

POINT = "An offset, or an RFC 3339 time with its zone such as 2030-01-31T06:00:00Z"


def number_field(title: str, highest: int, description: str, lowest: int = 0) -> Param:
    """A whole number from ``lowest`` to ``highest``."""
    return Param(None, type=["null", "integer"], minimum=lowest, maximum=highest, title=title, description=description)


def text_field(title: str, description: str, *values: str) -> Param:
    """A text, for which the form offers ``values``."""
    some: dict[str, Any] = {"examples": list(values)} if values else {}
    return Param(None, type=["null", "string"], title=title, description=description, **some)


def topics(replication: Replication) -> Param:
    """Offers the topics to choose from if the file names each of them."""
    names = replication.topics.include
    offered = [] if any(map(is_pattern, names)) else sorted(names)
    offers: dict[str, Any] = {"examples": offered} if offered else {}
    return Param(
        None,
        type=["null", "array"],
        items={"type": "string"},
        title="Topics",
        description=f"Only these source topics of the replication{'' if offered else ', one a line'}; empty means all.",
        **offers,
    )


def dry_run(default: bool) -> Param:
    text = "Only show what would be done, in the log and the XCom of the task plan; change nothing."
    return Param(default, type="boolean", title="Dry run", description=text)


def lines(value: object) -> object:
    """The lines of a list without empty ones: Airflow's page sends an empty line for a list that was just emptied."""
    return [line for line in value if line != ""] if isinstance(value, (list, tuple)) else value


def text(value: object) -> str:
    """One line of text. Blanks alone, left in an emptied field, count as nothing."""
    return str(value or "").strip()
