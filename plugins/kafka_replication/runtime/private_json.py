"""JSON of values, also of those that may hold a password.

What reads and writes the values of a type is built at its first use: many commands load types that they never use.
"""

from __future__ import annotations

from typing import Any, NewType, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter

T = TypeVar("T")


def private(kind: type[T]) -> TypeAdapter[T]:
    """Reads and writes values of a dataclass. Its errors do not show what it was given.

    pydantic lets a type adapter set this for a `NewType`, not for a dataclass, and ignores it in the dataclass itself.
    """
    alias = cast(Any, NewType)("Private", kind)
    return TypeAdapter[T](alias, config=ConfigDict(hide_input_in_errors=True, defer_build=True))


def deferred(kind: type[T]) -> TypeAdapter[T]:
    """Reads and writes values of a type. The alias is for pydantic, as in `private`."""
    alias = cast(Any, NewType)("Deferred", kind)
    return TypeAdapter[T](alias, config=ConfigDict(defer_build=True))
