"""JSON of values, also of those that may hold a password.

What reads and writes the values of a type is built at its first use: many commands load types that they never use.
"""

from __future__ import annotations

from typing import Any, NewType, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter

T = TypeVar("T")


def deferred(kind: type[T], *, private: bool = False) -> TypeAdapter[T]:
    """Reads and writes values of a type. Errors of a ``private`` one do not show what it was given.

    pydantic lets a type adapter set both for a `NewType`, not for a dataclass, and ignores it in the dataclass itself.
    """
    alias = cast(Any, NewType)("Deferred", kind)
    return TypeAdapter[T](alias, config=ConfigDict(hide_input_in_errors=private, defer_build=True))
