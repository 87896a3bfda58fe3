"""The documents that ``--json`` prints and that Airflow's tasks push to XCom: docs/api.md says which command has which.

A pydantic ``TypeAdapter`` of each reads them: ``TypeAdapter(RunDocument).validate_python(pulled).ranges[0].copied``.
"""

from __future__ import annotations

from kafka_replication.documents import (
    ApprovedDocument,
    FailureDocument,
    GapRow,
    GroupPlaceRow,
    GroupRow,
    OpenCauseRow,
    PartitionRow,
    ResetDocument,
    ResetRow,
    SentRow,
    StatusRow,
    WatchDocument,
    WatchedRow,
)
from kafka_replication.ledger.entries import Ids as IdsRow
from kafka_replication.ledger.entries import Place as PlaceRow
from kafka_replication.ledger.values import Adopted as AdoptedRow
from kafka_replication.ledger.values import Seal as SealRow
from kafka_replication.model.offsets import PartitionKey as KeyRow
from kafka_replication.model.offsets import TopicPartition as SourceRow
from kafka_replication.model.trouble import Trouble as FindingRow
from kafka_replication.overview.rows import OverviewDocument, OverviewRow
from kafka_replication.planning.acls import Acl as AclRow
from kafka_replication.planning.acls import AclPlan
from kafka_replication.planning.acls import NotCarried as NotCarriedRow
from kafka_replication.planning.plan import PartitionPlan as PartitionPlanRow
from kafka_replication.planning.plan import Plan as StoredPlan
from kafka_replication.reporting.acls import AclsDocument, ScramRow
from kafka_replication.reporting.adopted import AdoptDocument, AdoptRow
from kafka_replication.reporting.audit import AuditDocument, AuditOutcome, AuditRow, DifferenceRow
from kafka_replication.reporting.backfill import BackfillPlanDocument, BackfillRow
from kafka_replication.reporting.certificate import (
    Certificate,
    CertifiedDocument,
    CertifiedPartition,
    CertifiedReceipts,
    CertifiedSelection,
    CheckedCertificate,
)
from kafka_replication.reporting.drill import DrillDocument
from kafka_replication.reporting.failed import DecidedDocument, DecidedRow, FailedDocument, FailedRecordRow, HistoryRow
from kafka_replication.reporting.failover import FailoverDocument, FailoverRow, FailoverState
from kafka_replication.reporting.groups import GroupsDocument
from kafka_replication.reporting.ledger import LedgerDocument, LedgerRow, RebuiltDocument, RebuiltRow
from kafka_replication.reporting.progress import Progress as ProgressRow
from kafka_replication.reporting.progress import RecentRunRow, StatusDocument
from kafka_replication.reporting.progress import RunAtWork as RunAtWorkRow
from kafka_replication.reporting.run import DryRunDocument, DryRunRow, Outcome, PlannedOutcome
from kafka_replication.reporting.run import RangeReport as RangeRow
from kafka_replication.reporting.run import RunReport as RunDocument
from kafka_replication.reporting.status import VerifiedRow, VerifyDocument
from kafka_replication.reporting.table import (
    CheckDocument,
    CheckFailureDocument,
    EngineRow,
    EngineTurnRow,
    PlanDocument,
    PlanFailureDocument,
)
from kafka_replication.reporting.turning import StepRow, TurnDocument, TurnRow
from kafka_replication.verification.auditing import Sample as SampleRow

__all__ = [
    "AclPlan",
    "AclRow",
    "AclsDocument",
    "AdoptDocument",
    "AdoptRow",
    "AdoptedRow",
    "ApprovedDocument",
    "AuditDocument",
    "AuditOutcome",
    "AuditRow",
    "BackfillPlanDocument",
    "BackfillRow",
    "Certificate",
    "CertifiedDocument",
    "CertifiedPartition",
    "CertifiedReceipts",
    "CertifiedSelection",
    "CheckDocument",
    "CheckFailureDocument",
    "CheckedCertificate",
    "DecidedDocument",
    "DecidedRow",
    "DifferenceRow",
    "DrillDocument",
    "DryRunDocument",
    "DryRunRow",
    "EngineRow",
    "EngineTurnRow",
    "FailedDocument",
    "FailedRecordRow",
    "FailoverDocument",
    "FailoverRow",
    "FailoverState",
    "FailureDocument",
    "FindingRow",
    "GapRow",
    "GroupPlaceRow",
    "GroupRow",
    "GroupsDocument",
    "HistoryRow",
    "IdsRow",
    "KeyRow",
    "LedgerDocument",
    "LedgerRow",
    "NotCarriedRow",
    "OpenCauseRow",
    "Outcome",
    "OverviewDocument",
    "OverviewRow",
    "PartitionPlanRow",
    "PartitionRow",
    "PlaceRow",
    "PlanDocument",
    "PlanFailureDocument",
    "PlannedOutcome",
    "ProgressRow",
    "RangeRow",
    "RebuiltDocument",
    "RebuiltRow",
    "RecentRunRow",
    "ResetDocument",
    "ResetRow",
    "RunAtWorkRow",
    "RunDocument",
    "SampleRow",
    "ScramRow",
    "SealRow",
    "SentRow",
    "SourceRow",
    "StatusDocument",
    "StatusRow",
    "StepRow",
    "StoredPlan",
    "TurnDocument",
    "TurnRow",
    "VerifiedRow",
    "VerifyDocument",
    "WatchDocument",
    "WatchedRow",
]
