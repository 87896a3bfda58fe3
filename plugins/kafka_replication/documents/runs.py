"""The documents of ``check``, ``plan``, ``run`` and ``backfill``."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from kafka_replication.documents.common import FailureDocument, FindingRow, FromUntil, GapRow, Pairs, PartitionRow
from kafka_replication.model.delivery import Delivery
from kafka_replication.model.targets import Promise

Outcome = Literal["done", "nothing_to_do", "failed"]
PlannedOutcome = Literal["planned", "nothing_to_do", "failed"]


class EngineRow(TypedDict):
    """The engine that begins with the ranges of so many partitions, and the reason."""

    engine: str
    why: str
    partitions: int


class EngineTurnRow(FromUntil):
    """An engine that got these offsets to copy instead of the chosen one, or of the one before it, and the reason."""

    engine: str
    why: str


class CheckDocument(TypedDict):
    """``check``: what a run would refuse or warn about. ``ok`` is false if one of the findings is an error. ``engines``
    is empty where nothing would be copied, or if there is no plan.
    """

    replication: str
    ok: bool
    findings: list[FindingRow]
    engines: list[EngineRow]


class CheckFailureDocument(FailureDocument, CheckDocument):
    """``check`` while a cluster does not answer: why, and the findings about everything else."""


class IdsRow(TypedDict):
    """The ids of the source cluster and of both topics; empty for a topic that does not exist yet."""

    source_cluster: str
    source_topic: str
    target_topic: str


class SourceRow(TypedDict):
    """A source partition."""

    topic: str
    partition: int


class KeyRow(TypedDict):
    """The identity of one copied partition."""

    replication: str
    source: SourceRow
    target_topic: str


class PartitionPlanRow(TypedDict):
    """The plan of one partition: ``copy`` is the range to copy, ``verify`` what is to be read back.

    ``state`` is a text of the plan's format; ``what`` and ``remedy`` are empty if nothing is refused. Copies that are
    ``removed`` from the target, and those of them that are ``missed``, are left out if there are none. ``engine``
    begins with the copy, for the reason ``engine_why``; both are left out if nothing is copied.
    """

    key: KeyRow
    state: str
    ids: IdsRow
    generation: int
    start: int
    position: int
    source_end: int
    watermark: int | None
    copy: list[int] | None
    verify: Pairs
    leader_epoch: int | None
    removed: NotRequired[Pairs]
    missed: NotRequired[Pairs]
    what: str
    remedy: str
    engine: NotRequired[str]
    engine_why: NotRequired[str]


class StoredPlan(TypedDict):
    """A plan as the store has it. ``receipts_from`` has an offset of the receipts topic for each ledger partition,
    ``settings`` what the plan depends on in the file.
    """

    format: int
    replication: str
    partitions: list[PartitionPlanRow]
    receipts_from: NotRequired[dict[str, int]]
    notes: NotRequired[list[str]]
    changes: NotRequired[list[str]]
    settings: NotRequired[dict[str, str]]


class PlanDocument(StoredPlan):
    """``plan``: what a run would do now."""

    findings: list[FindingRow]


class PlanFailureDocument(FailureDocument):
    """``plan`` while a cluster does not answer: why, and the findings about the other one."""

    replication: str
    findings: list[FindingRow]


class DryRunRow(PartitionRow):
    """The plan of one partition. ``to_copy`` is a ``[from, until]`` pair. ``engine`` begins with it, for the reason
    ``engine_why``; both are null if nothing is copied.
    """

    state: str
    position: int
    source_end: int
    to_copy: list[int] | None
    to_verify: Pairs
    engine: str | None
    engine_why: str | None
    error: str | None
    remedy: str | None


class DryRunDocument(TypedDict):
    """The result of Airflow's task ``plan`` if the run is triggered as a dry run."""

    replication: str
    dry_run: Literal[True]
    outcome: PlannedOutcome
    offsets_to_copy: int
    topics_to_create: list[str]
    partitions: list[DryRunRow]
    notes: list[str]


class RangeRow(PartitionRow, FromUntil):
    """One range of a run. ``until - from`` is the sum of ``copied``, ``copied_before``, ``filtered``, ``quarantined``,
    ``skipped``, ``lost_in_delivery``, ``not_visible``, ``lost`` and ``missing``; docs/words.md explains each.

    ``superseded`` of the copied records are not found, because a newer one of their key is there (`shape: latest`).
    ``written`` counts the records of ``copied`` on the target, ``digest_ok`` is null if no digest was compared, and
    ``watermark`` if it did not move. ``bytes`` and ``seconds`` are those of this run's copy, ``engines`` those that
    wrote it. ``engine_why`` is the plan's reason for the engine that it chose; null if this run copied nothing or the
    plan is an older one. ``engine_turns`` says which other engine began or took over, and why: the first three times of
    a range, as far as the last attempt to copy told them; the log of the task has all.
    """

    copied: int
    copied_before: int
    written: int
    filtered: int
    quarantined: int
    skipped: int
    lost_in_delivery: int
    duplicates: int
    superseded: int
    not_visible: int
    lost: int
    missing: int
    digest_ok: bool | None
    watermark: int | None
    bytes: int
    seconds: float
    engines: list[str]
    engine_why: str | None
    engine_turns: list[EngineTurnRow]
    error: str | None


class RunDocument(TypedDict):
    """``run`` and ``backfill``, and what Airflow's last task pushes: the report of a run, with a row for each range.

    ``gaps`` has all approved gaps of the replication, ``removed`` says which copies are no longer on the target.
    ``verified_by`` is the weakest way of reading back (``digest``, ``count``, ``none``), ``delivery`` the weakest
    profile. ``promise`` is that of the target: unless it is ``transactional``, readers may see records before they are
    committed.
    """

    replication: str
    run_id: str
    outcome: Outcome
    ranges: list[RangeRow]
    gaps: list[GapRow]
    removed: list[str]
    verified_by: str
    delivery: Delivery
    promise: Promise
    notes: list[str]


class BackfillRow(PartitionRow, FromUntil):
    """A backfill's plan of one partition. ``newer_on_target`` counts offsets that are on the target already,
    although they come after the new copies in the source.

    An estimate is null if there is none. ``kept_until`` is when the target may delete the oldest record; null, as
    ``target_keeps_ms``, if it never does or if that is not known. ``engine`` begins with the copy, for the reason
    ``engine_why``; both are null if nothing is copied.
    """

    on_target: Pairs
    gone: Pairs
    to_copy: Pairs
    to_copy_again: Pairs
    lost_on_both_sides: Pairs
    withheld: Pairs
    to_verify: Pairs
    estimated_records: int | None
    estimated_bytes: int | None
    newer_on_target: int
    oldest_record: str | None
    target_keeps_ms: int | None
    kept_until: str | None
    engine: str | None
    engine_why: str | None
    error: str | None
    remedy: str | None


class BackfillPlanDocument(TypedDict):
    """``backfill --dry-run``, and what Airflow's task pushes: what would be copied."""

    replication: str
    dry_run: Literal[True]
    outcome: PlannedOutcome
    offsets_to_copy: int
    estimated_records: int | None
    estimated_bytes: int | None
    partitions: list[BackfillRow]
