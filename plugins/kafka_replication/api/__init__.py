"""The public interface: everything that code outside of this package may import. docs/api.md has examples.

A transform or a partitioning function takes a `Record`; a replication file names it. A target of
another kind than Kafka implements `Target` with its parts; an engine implements `CopyEngine` and
`SourceReader`; a way to tell people implements `Channel`. `documents` has the types of what ``--json`` prints,
`api.targets` what else a target needs.

Transforms, partitioning functions and documents stay as they are: keys of documents are only added. The interfaces of
sinks, engines, the ledger and channels may change with a minor version. Every error that their methods raise, but for
`HandOver`, is a `ReplicationError`; its class says whether a new session can help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafka_replication.alerting.telling import Channel, Fields, Message, Severity
from kafka_replication.copying.engine import Chunk, CopyEngine, CopyTask, HandOver, SourceReader
from kafka_replication.copying.sink import Record as SinkRecord
from kafka_replication.copying.sink import RecordWriter, RefusedAt, SetAside, Sink, SinkSession, TargetState
from kafka_replication.ledger.entries import FailedRecord, Ids, Position, Receipt
from kafka_replication.ledger.placement import Placement
from kafka_replication.ledger.port import Ledger, TransactionPort
from kafka_replication.model.choices import Failure, FailureKind
from kafka_replication.model.errors import (
    BadInput,
    Fenced,
    ForeignWriter,
    GapFound,
    LedgerUnreadable,
    NotAdmitted,
    NotAuthorized,
    NotDelivered,
    NotReady,
    OutOfTime,
    RecordRefused,
    Refused,
    ReplicationError,
    Stalled,
    TooManyFailed,
    Unreachable,
    VerificationFailed,
)
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.targets.port import (
    Catalogue,
    Quarantine,
    RecordReader,
    Standing,
    Target,
    TargetKind,
    TargetSettings,
    ToCreate,
)
from kafka_replication.transforms import Header, Record, Source
from kafka_replication.verification.verify import TargetReader

Transform = Callable[[Record], Record | Iterable[Record] | None]
"""A transform: one record, several or none (None leaves it out). It must be pure, because an audit calls it again."""
Partitioner = Callable[[Record, int], int]
"""A partitioning function: the target partition, from 0 to the number of partitions - 1. It must be pure."""

__all__ = [
    "BadInput",
    "Catalogue",
    "Channel",
    "Chunk",
    "CopyEngine",
    "CopyTask",
    "Coverage",
    "FailedRecord",
    "Failure",
    "FailureKind",
    "Fenced",
    "Fields",
    "ForeignWriter",
    "GapFound",
    "HandOver",
    "Header",
    "Ids",
    "Ledger",
    "LedgerUnreadable",
    "Message",
    "NotAdmitted",
    "NotAuthorized",
    "NotDelivered",
    "NotReady",
    "OffsetRange",
    "OutOfTime",
    "PartitionKey",
    "Partitioner",
    "Placement",
    "Position",
    "Quarantine",
    "Receipt",
    "Record",
    "RecordReader",
    "RecordRefused",
    "RecordWriter",
    "Refused",
    "RefusedAt",
    "ReplicationError",
    "SetAside",
    "Severity",
    "Sink",
    "SinkRecord",
    "SinkSession",
    "Source",
    "SourceReader",
    "Stalled",
    "Standing",
    "Target",
    "TargetKind",
    "TargetReader",
    "TargetSettings",
    "TargetState",
    "ToCreate",
    "TooManyFailed",
    "TopicPartition",
    "TransactionPort",
    "Transform",
    "Unreachable",
    "VerificationFailed",
    "documents",
]
