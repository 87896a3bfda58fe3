"""The schemas in docs/schema, as those who read the documents of the command line have them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parents[2] / "docs" / "schema"


def check_output(arguments: Sequence[str], out: str) -> None:
    """Compare the document of a command line that ended with the schema of its command, if it had to print one."""
    if "--json" in arguments and out.strip():
        check(next(argument for argument in arguments if not argument.startswith("-")), json.loads(out))


def check(name: str, document: Any) -> None:
    """Compare a document with a schema. A key that the schema does not have is an error here: schemas are complete."""
    errors = [f"{error.json_path}: {error.message[:500]}" for error in _validator(name).iter_errors(document)]
    assert not errors, f"{name}: {errors}"


@cache
def _validator(name: str) -> Draft202012Validator:
    schema = _closed(json.loads((FOLDER / f"{name}.schema.json").read_text()))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def _closed(schema: Any) -> Any:
    """The schema, with no other keys allowed than those that it lists."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **closed} if isinstance(schema.get("properties"), dict) else closed
