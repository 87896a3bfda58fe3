"""The hooks of connection types that have no provider: Airflow's form has their fields, and its button tests them."""

from __future__ import annotations

from typing import ClassVar

from airflow.sdk import BaseHook

from kafka_replication.config import Replication
from kafka_replication.model.choices import HBASE, OPENSEARCH
from kafka_replication.model.errors import ReplicationError
from kafka_replication.orchestration.connections import AirflowConnections
from kafka_replication.runtime.deadline import NEVER
from kafka_replication.targets import port
from kafka_replication.targets.port import Target, TargetSettings


class TargetHook(BaseHook):
    """Reaches the targets of one kind."""

    conn_name_attr = "connection_id"
    conn_type: ClassVar[str]

    def __init__(self, connection_id: str) -> None:
        super().__init__()
        self.connection_id = connection_id

    def get_conn(self) -> Target:
        """The target. Does not connect. Raises ConnectionMissing, BadInput."""
        kind = port.kind(self.conn_type)
        settings = AirflowConnections().service(self.connection_id, kind.connection_type)
        connection = kind.checked(self.connection_id, settings)
        # A person waits for the answer, so that it may take less than that of a run.
        asking = Replication.model_validate(
            {
                "name": "connection-test",
                "source": {"connection": "source"},
                "target": {"connection": "target"},
                "topics": {"include": ["none"]},
                "timeouts": {"request": 10},
            }
        )
        return kind(TargetSettings(replication=asking, connection=connection), NEVER)

    def test_connection(self) -> tuple[bool, str]:
        """True if the target answers; what Airflow shows about it."""
        try:
            target = self.get_conn()
            target.connect()
        except ReplicationError as error:
            return False, str(error)
        return True, f"{target.login.cluster.address} answers"


class HBaseHook(TargetHook):
    """HBase, by its Thrift2 gateway."""

    conn_type, hook_name, default_conn_name = HBASE, "HBase (Thrift2 gateway)", "hbase_default"


class OpenSearchHook(TargetHook):
    """OpenSearch, where its provider is not installed."""

    conn_type, hook_name, default_conn_name = OPENSEARCH, "OpenSearch", "opensearch_default"
