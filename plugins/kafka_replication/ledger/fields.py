"""The JSON of ledger entries: their base class, and the fields that are more than a number or a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator, SkipValidation

from kafka_replication.model.offsets import Coverage, OffsetRange

# Of a value with fields of its own: nothing is converted, and a field that is not known is refused.
STRICT: Final = ConfigDict(strict=True, extra="forbid")
# Of an entry: fields that are not known are kept beside it.
ENTRY: Final = ConfigDict(strict=True, extra="ignore")


def _range(pair: Any) -> OffsetRange:
    if not isinstance(pair, list) or [type(number) for number in pair] != [int, int]:
        raise ValueError(f"not an offset range: {pair!r}")
    return OffsetRange(*pair)


def _pair(range_: OffsetRange) -> list[int]:
    return [range_.from_, range_.until]


Number = Annotated[int, Field(ge=0)]
JsonRange = Annotated[OffsetRange, PlainValidator(_range), PlainSerializer(_pair)]
JsonCoverage = Annotated[Coverage, PlainValidator(Coverage.decode), PlainSerializer(Coverage.encode)]
Extra = Annotated[Mapping[str, Any], SkipValidation]


class LedgerEntry:
    """An entry of the ledger.

    ``KIND`` is its ``type`` in JSON, ``FORMAT`` the version that is written and read. All fields are required in JSON
    but the ``OPTIONAL`` ones, which are left out where they have their default.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ENTRY

    KIND: ClassVar[str]
    FORMAT: ClassVar[int]
    OPTIONAL: ClassVar[frozenset[str]] = frozenset()
    extra: Extra
