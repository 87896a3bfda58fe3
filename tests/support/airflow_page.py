"""What Airflow's page does with the form of a DAG, as its source says (airflow-core/.../ui/src/components/FlexibleForm)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EMPTIED: tuple[Any, ...] = (None, [""], [])  # what the page may send for a field that a person emptied


def sends(schema: Mapping[str, Any], value: object) -> bool:
    """Whether the page sends the form with this value in the field. It disables Trigger for an empty field that is
    required, and takes a field for required if it has a type that does not allow null.
    """
    allowed = schema.get("type")
    required = bool(allowed) and not (isinstance(allowed, list) and "null" in allowed)
    return not required or value not in (None, "")
