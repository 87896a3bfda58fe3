"""The document of ``overview``."""

from __future__ import annotations

from typing_extensions import TypedDict


class OverviewRow(TypedDict):
    """One replication, as the store knows it. ``lag`` (offsets), ``lag_seconds`` and ``partitions`` are of the time
    ``measured_at``; ``last_verified`` is when a watermark moved last.

    ``state``: ``failing``, ``late``, ``waiting`` and ``unseen`` need a person; ``running``, ``behind``, ``paused`` and
    ``in sync`` do not. ``run_id``, ``records``, ``bytes`` and ``seconds`` are of the newest run that copied something.
    ``what`` and ``remedy`` are of the worst open alert, ``alerts`` is the number of open ones, ``undecided`` that of
    failed records without a decision. What is not known is null. ``next_run`` is null for runs by hand, and while the
    schedule is switched off.
    """

    replication: str
    source: str | None
    target: str | None
    state: str
    needs_person: bool
    partitions: int
    lag: int | None
    lag_seconds: float | None
    measured_at: str | None
    last_verified: str | None
    run_id: str | None
    records: int | None
    bytes: int | None
    seconds: float | None
    what: str | None
    remedy: str | None
    since: str | None
    alerts: int
    undecided: int
    running: list[str]
    next_run: str | None
    paused: bool


class OverviewDocument(TypedDict):
    """``overview``: all replications, first those that need a person; ``need_person`` counts these. ``broken`` has the
    mistakes of files that cannot be read.
    """

    replications: list[OverviewRow]
    need_person: int
    broken: list[str]
