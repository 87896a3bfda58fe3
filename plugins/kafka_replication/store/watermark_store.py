"""The watermark store: each of its parts, with the SQL of its tables, on one database."""

from __future__ import annotations

from kafka_replication.store.alerts import Alerts
from kafka_replication.store.leases import Leases
from kafka_replication.store.runs import Runs
from kafka_replication.store.sight import Certificates, Groups, Sight
from kafka_replication.store.tables import Boundaries, FailedRecords, Sums, Watermarks


class WatermarkStore(Watermarks, Leases, Runs, FailedRecords, Boundaries, Alerts, Sight, Sums, Groups, Certificates):
    """All that the store keeps. Who needs one part takes that."""
