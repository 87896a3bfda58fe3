"""Names that a target of another kind needs beside the interfaces and errors of `kafka_replication.api`: values that
these interfaces take and return, and parts of a target that are written already. docs/own-target.md names each.
"""

from __future__ import annotations

from kafka_replication.config import Copy, Replication
from kafka_replication.config.topics import Documents
from kafka_replication.copying.sink import MOST_IN_CHUNK, Batches, Screen, digest_of, failed_record, size_of
from kafka_replication.ledger.entries import (
    POSITIONS,
    RECEIPTS,
    Deleted,
    Entry,
    Gap,
    Handled,
    Place,
    Removed,
    Start,
    Verified,
)
from kafka_replication.ledger.placement import (
    KafkaPartitions,
    KafkaSegments,
    NewestByKey,
    Part,
    Segment,
    UnknownPlacement,
)
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import LedgerView, NewestEntries
from kafka_replication.model.choices import IDEMPOTENT, TRANSACTIONAL, Delivery, KeyHash, Partitioning, Promise, Shape
from kafka_replication.model.offsets import LEDGER_PARTITIONS
from kafka_replication.model.rights import ClusterName, DenyRule, Login
from kafka_replication.model.times import now
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic, TopicDefaults
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.targets.idempotent import IdempotentSession
from kafka_replication.targets.journal import LEDGER_PLACE, Head, LedgerRecord
from kafka_replication.targets.keyed import NoPlace
from kafka_replication.targets.port import Failures
from kafka_replication.targets.record_store import Aside, Description, Item, Leftover, Records, RecordStore, Resend
from kafka_replication.targets.stored_reading import StoredQuarantine, StoredStanding
from kafka_replication.targets.stored_target import StoredCatalogue, StoredSink, StoredTarget
from kafka_replication.verification.digests import BatchDigest, Digest, Fingerprint
from kafka_replication.verification.matching import Seen
from kafka_replication.verification.verify import PartDigest

__all__ = [
    "IDEMPOTENT",
    "LEDGER_PARTITIONS",
    "LEDGER_PLACE",
    "MOST_IN_CHUNK",
    "NEVER",
    "POSITIONS",
    "RECEIPTS",
    "TRANSACTIONAL",
    "Aside",
    "BatchDigest",
    "Batches",
    "ClusterName",
    "Copy",
    "Deadline",
    "Deleted",
    "Delivery",
    "DenyRule",
    "Description",
    "Digest",
    "Documents",
    "Entry",
    "Failures",
    "Fingerprint",
    "Gap",
    "Handled",
    "Head",
    "IdempotentSession",
    "Item",
    "KafkaPartitions",
    "KafkaSegments",
    "KeyHash",
    "LedgerRecord",
    "LedgerView",
    "Leftover",
    "Login",
    "NewestByKey",
    "NewestEntries",
    "NoPlace",
    "Part",
    "PartDigest",
    "PartitionOffsets",
    "Partitioning",
    "Place",
    "Promise",
    "Receipts",
    "RecordStore",
    "Records",
    "Removed",
    "Replication",
    "Resend",
    "Screen",
    "Seen",
    "Segment",
    "Shape",
    "Snapshot",
    "Start",
    "StoredCatalogue",
    "StoredQuarantine",
    "StoredSink",
    "StoredStanding",
    "StoredTarget",
    "Topic",
    "TopicDefaults",
    "Trouble",
    "UnknownPlacement",
    "Verified",
    "digest_of",
    "failed_record",
    "now",
    "size_of",
]
