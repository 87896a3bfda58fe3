"""JSON of values that may hold a password."""

from __future__ import annotations

from typing import Any, NewType, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter

T = TypeVar("T")


def private(kind: type[T]) -> TypeAdapter[T]:
    """Reads and writes values of a dataclass. Its errors do not show what it was given.

    pydantic lets a type adapter set this for a `NewType`, not for a dataclass, and ignores it in the dataclass itself.
    """
    alias = cast(Any, NewType)("Private", kind)
    return TypeAdapter[T](alias, config=ConfigDict(hide_input_in_errors=True))
