"""The engine that begins with a range, and why, as far as it is known before it is read; and the turns of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from kafka_replication.model.offsets import OffsetRange

AUTO: Final = "auto"
BATCH: Final = "batch"  # the faster one, where it can copy
RECORD: Final = "record"  # copies every range
# With `auto` the record engine copies shorter ranges: most of their time goes into connections, of which it has fewer.
SHORT: Final = 5_000  # offsets
# And it copies what lies in batches of fewer records each: of these, the batch engine needs more processor time.
FEW: Final = 8  # records


class EngineChoice(NamedTuple):
    """The name of an engine, and the reason for it."""

    engine: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An engine that gets these offsets to copy instead of the chosen one, or of the one before it, and the reason."""

    engine: str  # with its version, as in receipts
    range: OffsetRange
    why: str

    def is_of(self, choice: EngineChoice) -> bool:
        return self.engine.partition("/")[0] == choice.engine


def chosen(engine: str, span: int, why_not_batches: str | None = None) -> EngineChoice:
    """The choice for a range of ``span`` offsets with this `copy.engine`, where whole batches are not possible for this
    reason, or are possible.
    """
    if engine == RECORD:
        return EngineChoice(RECORD, "copy.engine says so")
    if why_not_batches is not None:
        return EngineChoice(RECORD, why_not_batches)
    if engine == BATCH:
        return EngineChoice(BATCH, "copy.engine says so")
    if span < SHORT:
        return EngineChoice(RECORD, f"it has fewer than {SHORT:,} offsets")
    takes_over = f"the record engine takes over if its batches have fewer than {FEW} records each"
    return EngineChoice(BATCH, f"it has {SHORT:,} offsets or more; {takes_over}")
