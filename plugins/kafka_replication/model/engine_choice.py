"""The engine that begins with a range, and why, as far as it is known before the range is read."""

from __future__ import annotations

from typing import Final, NamedTuple

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
