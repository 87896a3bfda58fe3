"""Values inside ledger entries: ids, transforms, and records that were set aside. Their types are their JSON.

The JSON of ledger entries: their base class, and the fields that are more than a number or a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from enum import StrEnum
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


Number = Annotated[int, Field(ge=0)]
_AS_PAIR: Final = PlainSerializer(lambda range_: [range_.from_, range_.until], return_type=list[int])
JsonRange = Annotated[OffsetRange, PlainValidator(_range), _AS_PAIR]
JsonCoverage = Annotated[Coverage, PlainValidator(Coverage.decode), PlainSerializer(Coverage.encode)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """An entry of the ledger.

    ``KIND`` is its ``type`` in JSON, ``FORMAT`` the version that is written and read. All fields are required in JSON
    but the ``OPTIONAL`` ones, which are left out where they have their default. ``extra``: what a newer version added.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ENTRY

    KIND: ClassVar[str]
    FORMAT: ClassVar[int] = 1
    OPTIONAL: ClassVar[frozenset[str]] = frozenset()
    extra: Annotated[Mapping[str, Any], SkipValidation] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Ids:
    """The ids of the source cluster and of both topics. A name can be used again, an id cannot."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    source_cluster: str
    source_topic: str
    target_topic: str


class Proof(StrEnum):
    """The way to prove that the records of a chunk are on the target."""

    BY_TRANSACTION = "by transaction"  # they lie where the receipt says, and nothing else lies there
    BY_WINDOW = "by window"  # each record between two ends of the target's log is explained
    BY_KEY = "by key"  # the newest record of each of its keys is there, or a newer one


@dataclass(frozen=True, slots=True)
class Transform:
    """The filter or transform of a copy: its name, and the hash of its definition."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str
    hash: str

    def __str__(self) -> str:
        return f"{self.name} ({self.hash})"


def how(transform: Transform | None) -> str:
    """The manner in which records were copied, for messages."""
    return f"with {transform}" if transform else "without filter or transform"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A copy of another tool that a partition goes on behind, and the comparison that found where it ends.

    ``target_from`` and ``target_until`` bound the target offsets that were compared. ``compared`` is the number of
    records there, ``doubles`` of them are further copies of a source record; ``missing`` is the number of source
    records that are not among them, because the tool left them out or lost them.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    source: str  # the source of the hint: "mirrormaker2", "offsets" or "data"
    proof: str  # "tail" or "whole": how much of the copy was compared
    target_from: Number
    target_until: Number
    compared: Number
    doubles: Number
    missing: Number
    run_id: str
    time: str  # RFC 3339 UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """The end of a direction: nothing more is copied behind the position that has it. ``target_until`` is where the
    target partition ended then: what lies behind that was written by others. ``cut`` is the time from which on nobody
    had written to the source, RFC 3339 UTC; None if the source was given up.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    why: str  # the command: "failover"
    by: str
    reason: str
    target_until: Number
    run_id: str
    time: str  # RFC 3339 UTC
    cut: str | None = None

    @property
    def id(self) -> str:
        """Tells it from other seals of its partition."""
        return f"{self.time} {self.run_id}"

    def __str__(self) -> str:
        return f"by {self.why} at {self.time}, by {self.by}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The place of one record on a Kafka target."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


def _place(parts: Any) -> Place:
    if not isinstance(parts, list) or [type(part) for part in parts] != [str, int, int] or min(parts[1:]) < 0:
        raise ValueError(f"not a place: {parts!r}")
    return Place(*parts)


JsonPlace = Annotated[Place, PlainValidator(_place), PlainSerializer(astuple)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRecord:
    """One source record that a chunk set aside: quarantined at ``place``, or skipped (without a place).

    ``kind`` is one of `FailureKind`; a newer version may know more. ``size`` is in bytes, of key, value and headers; -1
    if nothing says it. ``key_digest`` (of the key alone; empty without a key) and ``digest`` are of the
    receipt's digest kind.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    offset: Number
    kind: str
    reason: str
    error: str
    size: int
    key_digest: str
    digest: str
    place: JsonPlace | None = None
