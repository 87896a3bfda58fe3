"""The steps of a replication that leave out or change records, as its file has them. They go to Spark with the job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDefinition:
    """First ``exclude_from`` (cluster ids), then ``filter`` (an expression), then each of ``transform`` in order."""

    filter: str | None = None
    transform: tuple[str, ...] = ()
    exclude_from: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """True if there is a step."""
        return bool(self.filter or self.transform or self.exclude_from)

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of the user's functions."""
        return tuple(dict.fromkeys(name.partition(":")[0] for name in self.transform if ":" in name))
