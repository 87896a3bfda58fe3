"""The documents of ``audit``, ``failed``, ``approve-gap``, ``reset`` and ``watch``."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from kafka_replication.documents.common import FromUntil, GapRow, PartitionRow
from kafka_replication.model.targets import Promise

AuditOutcome = Literal["clean", "differs", "failed"]


class DifferenceRow(TypedDict):
    """Consecutive records that differ in one way: ``missing``, ``extra``, ``moved`` or ``altered``.

    ``source`` and ``target`` are ``[from, until]`` pairs; null where that side does not have them. ``target_partition``
    is there if the copies of one source partition lie in several.
    """

    kind: str
    source: list[int] | None
    target: list[int] | None
    target_partition: NotRequired[int]
    count: int


class AuditRow(PartitionRow, FromUntil):
    """The audit of one partition. ``by_content`` counts source offsets that were compared with the source's records,
    ``by_receipt`` those that the source no longer has, and that were compared with the receipt.

    ``offsets`` counts the copied offsets of the range: the audit has looked at ``by_content`` + ``by_receipt`` of them.

    ``differences`` lists stretches; further records that differ are counted as ``unlisted``. ``errors`` say why the
    audit of the partition could not be finished.
    """

    generation: int
    outcome: AuditOutcome
    chunks: int
    offsets: int
    source_records: int
    target_records: int
    by_content: int
    by_receipt: int
    not_at_source: int
    lost_in_delivery: int
    duplicates: int
    superseded: int
    quarantined: int
    skipped: int
    retried: int
    verified_by: str
    missing: int
    extra: int
    moved: int
    altered: int
    differences: list[DifferenceRow]
    unlisted: int
    lost: list[GapRow]
    notes: list[str]
    errors: list[str]


class SampleRow(TypedDict):
    """A sample of at most so many ``chunks`` of each partition; the same ``seed`` gives the same ones."""

    chunks: int
    seed: int


class AuditDocument(TypedDict):
    """``audit``, its ``--report`` file, and what Airflow's task pushes, which lists fewer differences.

    ``sample`` is null if everything was looked at. ``promise``: as in ``run``.
    """

    format: int
    replication: str
    promise: Promise
    run_id: str
    time: str
    outcome: AuditOutcome
    sample: SampleRow | None
    partitions: list[AuditRow]


class PlaceRow(TypedDict):
    """The place of one record on the target."""

    topic: str
    partition: int
    offset: int


class HistoryRow(TypedDict):
    """One step in the life of a failed record. ``by`` is empty for what a run did."""

    time: str
    state: str
    run_id: str
    by: str
    reason: str


class FailedRecordRow(PartitionRow):
    """One record that could not be copied. ``size`` (key, value and headers) and ``digest`` are of the record; null or
    empty if it could not be read. ``place`` is where it lies in the quarantine topic; null for a skipped record.
    """

    generation: int
    offset: int
    kind: str
    state: str
    size: int | None
    key_digest: str | None
    digest: str
    reason: str
    error_class: str
    place: PlaceRow | None
    history: list[HistoryRow]


class FailedDocument(TypedDict):
    """``failed list`` and ``failed show``."""

    replication: str
    records: list[FailedRecordRow]


class DecidedRow(FailedRecordRow):
    """A record after a decision. ``done`` is false if it stays as it was, and ``why`` says the reason.

    ``target`` is where a retried record lies now; ``order_lost`` if newer records of its partition lie before it.
    """

    done: bool
    target: str | None
    order_lost: bool
    why: str | None


class DecidedDocument(TypedDict):
    """``failed retry`` and ``failed discard``."""

    replication: str
    records: list[DecidedRow]


class ApprovedDocument(TypedDict):
    """``approve-gap``. ``new`` is false if the gap was recorded before."""

    replication: str
    new: bool
    gap: GapRow


class ResetRow(PartitionRow):
    """The new generation of one partition, and the source offset where it starts."""

    generation: int
    start: int


class ResetDocument(TypedDict):
    """``reset``: the partitions that start again."""

    replication: str
    partitions: list[ResetRow]


class OpenCauseRow(TypedDict):
    """A cause of trouble that lasts, and of which a person was told. ``subject`` is a source topic, or empty for the
    whole replication; ``where`` names partitions with their offsets.
    """

    kind: str
    subject: str
    since: str
    what: str
    remedy: str
    where: list[str]


class SentRow(TypedDict):
    """An alert that this look made. ``event`` is ``opened``, ``repeated`` or ``healed``."""

    event: str
    kind: str
    subject: str


class WatchedRow(TypedDict):
    """One replication. ``watched`` is false if nothing could be found out; the log says why."""

    replication: str
    watched: bool
    open: list[OpenCauseRow]
    sent: list[SentRow]


class WatchDocument(TypedDict):
    """``watch``: one document for each look."""

    replications: list[WatchedRow]
