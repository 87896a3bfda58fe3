"""Source offsets that a position passes without copying them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

from kafka_replication.ledger.offset_map import AdoptedPlaces
from kafka_replication.ledger.values import STRICT, Ids, JsonCoverage, JsonRange, LedgerEntry, Number

# retention: the source deleted the records before they were copied. late: the offsets are before the log start of a
# partition that was added later. unverifiable: the target deleted the copies before they were read back. returned: the
# records came from the target. aside: only the source had them when the replication was turned around, and a person had
# them copied to a topic of their own.
ELSEWHERE = RETURNED, ASIDE = "returned", "aside"  # both sides have the records all the same
GAP_KINDS = ("retention", "late", "unreadable", "unverifiable", *ELSEWHERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The turn of a direction: it goes on behind the ``seal`` (its id) of the other direction, its reverse.

    ``target`` bounds the target offsets of the records that others wrote there since this direction was sealed; the
    target ended behind them then. ``places`` has the places of the returned records on the target. ``surplus`` are the
    target offsets that the other direction has not copied: the source does not have them in this topic. ``aside``: the
    topic of the source that has them instead; empty: none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    seal: str
    target: JsonRange
    surplus: JsonCoverage
    places: AdoptedPlaces
    aside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap(LedgerEntry):
    """Source offsets that are not copied: a person gave them up, or they came from the target. Written with the
    position that passes them. Never removed.
    """

    KIND = "gap"
    OPTIONAL = frozenset({"returned"})

    generation: Number
    kind: str  # one of GAP_KINDS
    range: JsonRange  # empty only where nothing has returned
    reason: str
    approved_by: str
    ids: Ids
    run_id: str
    time: str  # RFC 3339 UTC
    returned: Returned | None = None  # of the kind `RETURNED`

    def __post_init__(self) -> None:
        is_returned = self.returned is not None
        if self.kind not in GAP_KINDS or is_returned != (self.kind == RETURNED) or not (self.range.span or is_returned):
            raise ValueError(f"not a gap: {self.kind!r} {self.range}")

    @property
    def copied(self) -> bool:
        """True if the records were copied, and only their verification was given up."""
        return self.kind == "unverifiable"

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of its record key. Nothing may have returned twice at one source offset."""
        more = (self.returned.target.from_,) if self.returned else ()
        return (self.generation, self.range.from_, *more)
